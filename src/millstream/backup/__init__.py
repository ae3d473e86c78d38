"""Backups of a data directory: taken while it is in use, added to, and restored to a moment."""
