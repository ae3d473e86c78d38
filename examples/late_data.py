"""Temperatures by minute, although readings may come ten minutes late.

A minute is written once, when the watermark has passed it; what comes later still is left out.
"""


def in_celsius(spark, readings):
    """A step may be any function of frames."""
    return readings.selectExpr("sensor", "at", "round((fahrenheit - 32) * 5 / 9, 2) as celsius")


pipeline = {
    "name": "late-data",
    "sources": {
        "readings": {
            "stream": "READINGS",
            "json": {"sensor": "string", "fahrenheit": "double", "at": "timestamp"},
            "watermark": {"column": "at", "delay": "10m"},
        },
    },
    "steps": [
        {"name": "celsius", "from": "readings", "python": in_celsius},
        {
            "name": "minutes",
            "from": "celsius",
            "window": {"column": "at", "size": "1m"},
            "by": ["sensor"],
            "aggregate": {"readings": "count(*)", "mean": "round(avg(celsius), 2)"},
        },
    ],
    "sinks": [{"from": "minutes", "parquet": "lake/minutes"}],
}
