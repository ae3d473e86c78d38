"""Time spans as Spark spells them: ``30 seconds``."""

_UNITS = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}


def seconds(span: str) -> float:
    """Return a span that a pipeline file gave, in seconds."""
    number, unit = span.split()
    return float(number) * _UNITS[unit.removesuffix("s")]
