"""What a stream is told: its configuration, with defaults, contradictions, sizes and times.

Comes in: JetStream's or HTTP's words. Goes out: a ``StreamConfig``, or an error that names the
field. Pure values; imports nothing else of ``streams``.
"""
