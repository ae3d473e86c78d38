"""TopicLimit: how many topics an account may have, those that are just being made included."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.errors import Throttled

if TYPE_CHECKING:
    from millstream.streams.catalog import Catalog

MOST_TOPICS = 100_000


class TopicLimit:
    """Names are reserved before their topics are made, so that no race goes above the cap."""

    def __init__(self, catalog: "Catalog", most: int = MOST_TOPICS) -> None:
        self._catalog = catalog
        self.most = most  # 0: as many as there are
        self._reserved: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def reserved(self, account: str, *names: str) -> Iterator[None]:
        """Hold room for topics while they are made; raises Throttled where there is none."""
        keys = [(account, name) for name in names]
        self._reserved.update(keys)
        try:
            self._check(account, keys)
            yield
        finally:
            self._reserved.subtract(keys)
            self._reserved += Counter()  # drops what nobody holds

    def _check(self, account: str, keys: list[tuple[str, str]]) -> None:
        most, find = self.most, self._catalog.find
        if not most or all(find(name, owner) is not None for owner, name in keys):
            return
        coming = sum(
            owner == account and find(name, owner) is None for owner, name in self._reserved
        )
        if self._catalog.table.count(account) + coming > most:
            raise Throttled("max_topics", most)
