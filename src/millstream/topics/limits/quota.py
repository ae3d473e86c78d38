"""Quota: how many bytes of data and meta all topics may hold together."""

from collections.abc import Callable

from millstream.errors import Throttled

LONGEST_SECONDS = 1.0  # after this what other doors wrote is counted too


class Quota:
    """Writes reserve their bytes before they are staged, so that none goes above the cap.

    What is held is counted anew only when the cap seems reached or a second has passed; in between
    it is taken to be what it was and all that was written since.
    """

    def __init__(
        self, most: int, measure: Callable[[], int], monotonic: Callable[[], float]
    ) -> None:
        self.most = most
        self._measure = measure
        self._monotonic = monotonic
        self._held = 0
        self._reserved = 0
        self._counted_at = float("-inf")

    def take(self, size: int) -> Callable[[bool], None]:
        """Reserve bytes or raise Throttled; returns what to call with whether they were kept."""
        if not self.most:
            return _nothing
        now = self._monotonic()
        if now - self._counted_at > LONGEST_SECONDS or not self._fits(size):
            self._held, self._counted_at = self._measure(), now
            if not self._fits(size):
                raise Throttled("max_total_bytes", self.most)
        self._reserved += size

        def settle(kept: bool) -> None:
            self._reserved -= size
            self._held += size if kept else 0

        return settle

    def _fits(self, size: int) -> bool:
        return self._held + self._reserved + size <= self.most


def _nothing(kept: bool) -> None:
    del kept
