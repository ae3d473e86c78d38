"""Requests under ``$MILLSTREAM.API``: read plans, raw frames and exactly-once batches for Spark."""
