"""What leaves a stream and why: limits, ages, deletes, purges, interest that has ended.

``rules.py``, ``claims.py`` and ``holds.py`` decide on values; ``removal.py``, ``limits.py`` and
``ageing.py`` say what goes, ``departures.py`` has it removed from the log. Imports
``streams.writing``, ``streams.reading`` and ``streams.config``.
"""
