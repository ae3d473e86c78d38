"""How messages get in: admission, atomic and fast batches, counters, due schedules.

Comes in: batches from the kernel and records from other parts. Goes out: runs for
``streams.writing``, refusals with their code. Imports ``streams.retention`` and what is below it.
"""
