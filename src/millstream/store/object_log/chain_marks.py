"""ChainMarks: how the log goes on behind each of our entries, until a head covers them."""

from millstream.store.object_log.entry import Chain


class ChainMarks:
    """The checks of one writer's entries; whoever changes them holds the writer's lock."""

    def __init__(self, first: Chain) -> None:
        self._first = first
        self._checks: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._checks)

    def add(self, position: int, check: int) -> None:
        """Note an entry that was made."""
        self._checks[position] = check

    def at(self, position: int) -> Chain | None:
        """Return how the log goes on behind a position of ours, None where that is not known."""
        if position == self._first.position - 1:
            return self._first
        check = self._checks.get(position)
        if check is None:
            return None
        return Chain(position + 1, self._first.epoch, self._first.nonce, check)

    def cover(self, position: int) -> None:
        """Forget what only a head below ``position`` could ask for."""
        for at in [at for at in list(self._checks) if at < position]:
            del self._checks[at]
