"""The machine below the store: files, keys for bytes at rest, named objects, worker threads.

Comes in: paths, bytes and jobs. Goes out: bytes, or one of our errors. ``files.py`` is the only
module that asks the operating system for files, so that a fake disk can take its place. Imports
nothing else of the store.
"""
