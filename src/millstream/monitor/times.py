"""Durations as nats-server writes them."""

_UPTIME = ((365 * 86_400, "y"), (86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def uptime(elapsed_ns: int) -> str:
    """Return a duration in whole seconds: 1d2h3m4s, without leading zeros."""
    seconds, shown = max(elapsed_ns, 0) // 1_000_000_000, ""
    for size, unit in _UPTIME:
        count, seconds = divmod(seconds, size)
        if count or shown or unit == "s":
            shown += f"{count}{unit}"
    return shown


def nanoseconds(seconds: float) -> int:
    """Return seconds as durations appear in JSON."""
    return round(seconds * 1_000_000_000)


def duration(ns: int) -> str:
    """Return a short time as Go writes it: 1.442909ms, 870µs, 12ns."""
    for unit, size in (("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1000)):
        if ns >= size:
            return f"{ns / size:.9f}".rstrip("0").rstrip(".") + unit
    return f"{ns}ns" if ns else "0s"
