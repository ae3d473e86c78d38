"""``millstream apply`` and ``get``: what a server shall have, as one file."""
