"""Who may come in: users, keys and operators from the options as values that NATS and HTTP check.

Imports ``server.options``.
"""
