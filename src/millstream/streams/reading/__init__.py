"""Records of a stream as readers find them: by subject, through a view, as a plan of files.

Comes in: filters and ranges. Goes out: sequences, ``Frames`` and read plans. Imports
``streams.config``.
"""
