"""Found by Spark itself: it asks every top-level ``pyspark_*`` module for a ``DefaultSource``."""

from millstream.spark.source import MillstreamSource as DefaultSource

__all__ = ["DefaultSource"]
