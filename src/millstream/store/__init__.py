"""Records on disk: knows sequences and bytes, not policies."""
