"""Everything the server can be told, as values, and what contradicts what.

Comes in: what files, environment and flags said. Goes out: checked ``Options``. Imports nothing
else of ``server``.
"""
