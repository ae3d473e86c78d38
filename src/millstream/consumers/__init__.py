"""Positions in a stream and what is owed to whom."""
