"""PySpark over the streams; imports the client and the kernel, never the server.

from millstream.spark import register
register(spark)
spark.read.format("millstream").option("stream", "ORDERS").load()
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.spark.attached import attach
    from millstream.spark.reading.stream_table import count, table, with_payload_json
    from millstream.spark.session import register

__all__ = ["attach", "count", "register", "table", "with_payload_json"]


def __getattr__(name: str) -> Any:
    """Import Spark only for those who ask for it: decoding alone needs pyarrow."""
    if name == "attach":
        from millstream.spark.attached import attach

        return attach
    if name == "register":
        from millstream.spark.session import register

        return register
    if name in ("count", "table", "with_payload_json"):
        from millstream.spark.reading import stream_table

        return getattr(stream_table, name)
    raise AttributeError(name)
