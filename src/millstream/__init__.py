"""millstream: one durable log that NATS clients, HTTP clients and Spark share."""

__version__ = "0.1.0"
