"""How messages get in: admission, atomic and fast batches, counters, due schedules.

Comes in: batches from the kernel and records from other parts. Goes out: runs for
``streams.writing``, refusals with their code. ``admission.py`` looks at each message, ``room.py``
says whether it fits, ``atomic_ingest.py`` and ``fast_ingest.py`` take batches. Imports
``streams.retention`` and what is below it.
"""
