"""Auth callout: a service of an account says who clients are. Values and keys alone."""
