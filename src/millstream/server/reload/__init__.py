"""Changes while the server runs: what a new file changes, and how a server leaves.

``reload.py`` decides, ``reloading.py`` carries out. Imports ``server.options`` and
``server.access``.
"""
