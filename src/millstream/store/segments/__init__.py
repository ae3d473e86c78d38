"""Sealed stretches of a log as files: frames in ``.data``, their index in ``.idx``.

Comes in: frames on their way into a file. Goes out: frames and index entries, checked. Knows no log
and no policy. Imports ``store.disk`` alone.
"""
