"""The process itself: heap, open files, log output, pid files, signals.

Imports ``server.options`` alone.
"""
