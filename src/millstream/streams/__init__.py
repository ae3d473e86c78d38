"""A log plus policy: limits, dedupe, retention, subjects.

``stream.py`` is a sink: messages come in through ``publishing``, go through ``writing`` into the
log, are found by ``reading`` and leave by ``retention``. ``catalog.py`` keeps streams by account
and name. Comes in: batches from the kernel, records from other parts. Goes out: PubAcks, frames
for readers. Knows neither consumers nor NATS nor HTTP; they call down.
"""
