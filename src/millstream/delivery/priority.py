"""Priority: which topics are served first. Pure: numbers in, numbers out."""

LOWEST, HIGHEST = -1000, 1000
RECENCY = 500  # of a topic that is consumed just now
RECENCY_HALVES_MS = 30_000
RECENCY_ENDS_MS = 300_000
AGE_PER_MS = 0.1
OLDEST_MS = 10_000

BANDS = (750, 500, 250, 0)  # the lowest priority of each band but the last, from the top
WEIGHTS = (1, 1, 2, 4, 8)  # turns in a round, from the bottom band (0) to the top one (4)
BOTTOM, TOP = 0, 4


def effective(manual: int | None, is_automatic: bool, idle_ms: int | None) -> int:
    """Return a topic's priority: the one it was given, else what its consumers' interest is worth.

    ``idle_ms`` is how long ago somebody consumed it, None when nobody ever did.
    """
    if manual is not None:
        return max(LOWEST, min(HIGHEST, manual))
    if not is_automatic or idle_ms is None or idle_ms >= RECENCY_ENDS_MS:
        return 0
    return round(RECENCY * 2 ** (-max(0, idle_ms) / RECENCY_HALVES_MS))


def aged(priority: int, waited_ms: float) -> int:
    """Return the priority of something that has waited for its turn."""
    return round(priority + AGE_PER_MS * min(waited_ms, OLDEST_MS))


def band_of(priority: int) -> int:
    """Return the band, 0 for the lowest to 4 for the highest."""
    for below, least in enumerate(BANDS):
        if priority >= least:
            return TOP - below
    return BOTTOM
