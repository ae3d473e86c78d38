"""Records of a stream as readers find them: by number or subject, through a view, as files.

Comes in: filters and ranges. Goes out: sequences, ``Frames`` and read plans. Imports
``streams.config``.
"""
