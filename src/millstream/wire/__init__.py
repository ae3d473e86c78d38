"""The NATS client protocol as values and bytes, used by server and client. No I/O."""
