"""The page at ``/``: its files, the feed that keeps it live, who changed what, and what is masked.

The page itself (``web/``) uses the public HTTP API alone. This package serves its files, and adds
what a page needs beside the API: one feed for all who watch, rules that cover up data, and a log of
changes. It imports none of its neighbours; ``server`` hands over what it looks at.
"""
