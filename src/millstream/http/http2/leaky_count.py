"""LeakyCount: how often something came lately, beyond what is forgotten each second. Pure."""


class LeakyCount:
    """``most`` at once are fine, and ``per_second`` for ever."""

    __slots__ = ("_at", "_count", "_most", "_per_second")

    def __init__(self, most: int, per_second: float) -> None:
        self._most = most
        self._per_second = per_second
        self._count = self._at = 0.0

    def is_too_many(self, now: float) -> bool:
        """Count one more; says whether that is more than fine."""
        forgotten = (now - self._at) * self._per_second
        self._count, self._at = max(self._count - forgotten, 0.0) + 1, now
        return self._count > self._most
