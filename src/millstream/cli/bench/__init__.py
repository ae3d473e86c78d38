"""``millstream bench``: how fast a server is, seen from plain clients."""
