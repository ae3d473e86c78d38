"""``millstream topic``, ``queue``, ``router`` and ``reader``: what the HTTP API has."""
