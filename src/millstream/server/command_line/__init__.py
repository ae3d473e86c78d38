"""Options in force: flags over environment over file over defaults.

Comes in: what was typed. Goes out: ``Loaded`` options; again at every reload. Imports
``server.conf`` and ``server.options``.
"""
