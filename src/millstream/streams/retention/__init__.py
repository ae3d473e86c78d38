"""What leaves a stream and why: limits, ages, deletes, purges, settled interest.

``rules.py`` decides on values; ``removal.py`` carries it out on the log. Imports
``streams.writing``, ``streams.reading`` and ``streams.config``.
"""
