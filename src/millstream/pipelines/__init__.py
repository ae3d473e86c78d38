"""Pipelines over the streams: a file says what to read, do and write; Spark does it."""
