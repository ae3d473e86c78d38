"""RemoteInterest: what other servers want, by account; matching is the compiled Interest's."""

from dataclasses import dataclass, field

from millstream.kernel._interest import Interest

_Key = tuple[int, bytes, bytes, bytes]  # route, account, subject, queue


@dataclass(slots=True)
class _Wish:
    """A Sink that is never delivered to: it only stands for a route in the trie."""

    route: int
    weight: int


@dataclass(slots=True)
class _Space:
    interest: Interest = field(default_factory=Interest)
    wishes: dict[int, _Wish] = field(default_factory=dict)


class RemoteInterest:
    """Keyed by (route, account, subject, queue), each with a weight: its members over there."""

    def __init__(self) -> None:
        self.generation = 0  # moves with every change
        self._handles: dict[_Key, int] = {}
        self._spaces: dict[bytes, _Space] = {}

    def __len__(self) -> int:
        return len(self._handles)

    def apply(
        self, route: int, account: bytes, subject: bytes, queue: bytes = b"", weight: int = 1
    ) -> None:
        """Add interest or update its weight; ValueError for an illegal subject or weight."""
        if weight < 1:
            raise ValueError("a weight is at least 1")
        space = self._spaces.get(account) or _Space()
        handle = self._handles.get((route, account, subject, queue))
        if handle is None:
            wish = _Wish(route, weight)
            handle = space.interest.add_sink(subject, wish, queue)
            self._handles[route, account, subject, queue] = handle
            space.wishes[handle] = wish
            self._spaces[account] = space
        space.wishes[handle].weight = weight
        self.generation += 1

    def remove(self, route: int, account: bytes, subject: bytes, queue: bytes = b"") -> bool:
        """Forget one interest; False when there was none."""
        handle = self._handles.pop((route, account, subject, queue), None)
        if handle is None:
            return False
        space = self._spaces[account]
        space.interest.remove_sink(handle)
        del space.wishes[handle]
        if not space.wishes:
            del self._spaces[account]
        self.generation += 1
        return True

    def drop_route(self, route: int) -> int:
        """Forget everything that a lost route wanted; return how much that was."""
        return self._drop([key for key in self._handles if key[0] == route])

    def drop_account(self, route: int, account: bytes) -> int:
        """Forget what a route wanted in one account; return how much that was."""
        return self._drop([key for key in self._handles if key[:2] == (route, account)])

    def _drop(self, keys: list[_Key]) -> int:
        for key in keys:
            self.remove(*key)
        return len(keys)

    def has_remote_interest(self, account: bytes, subject: bytes) -> bool:
        """Tell whether any route wants a message on ``subject``."""
        space = self._spaces.get(account)
        return space is not None and space.interest.has_interest(subject)

    def match_remote(
        self, account: bytes, subject: bytes
    ) -> tuple[list[int], dict[bytes, list[int]]]:
        """Return routes with plain interest, and per queue each route as often as it weighs."""
        space = self._spaces.get(account)
        if space is None:
            return [], {}
        plain, groups = space.interest.match(subject)
        routes = list(dict.fromkeys(space.wishes[handle].route for handle in plain))
        return routes, {queue: _weighted(space, handles) for queue, handles in groups.items()}


def _weighted(space: _Space, handles: list[int]) -> list[int]:
    wishes = [space.wishes[handle] for handle in handles]
    return [wish.route for wish in wishes for _ in range(wish.weight)]
