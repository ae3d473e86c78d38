"""millstream: one durable log behind a NATS, an HTTP and a Spark door."""

__version__ = "0.1.0"
