"""The configuration file: NATS' own syntax in, option values out, a block a module.

Comes in: text. Goes out: ``Options``, warnings, or an error with file and line. Imports
``server.options``.
"""
