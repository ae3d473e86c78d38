"""The HTTP door: handlers as plain functions, tested without sockets."""
