"""Compiled loops over bytes and integers; no domain words."""
