"""Watchers: who looks again after each commit and removal of a stream."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator

TURN = 64  # watchers that look in one turn of the loop
FEW_SUBJECTS = 64  # of one commit; with more of them everybody looks

Watcher = Callable[[], None]


class Watchers:
    """Calls those whom a change may concern, in the order in which they came, in turns.

    Others get their turn of the loop between them, however many watch. What changes meanwhile
    makes nobody look twice who has not looked yet. ``are_filtered`` says whether some watch a part
    of the records alone, so that subjects matter: every commit reads it.
    """

    def __init__(self) -> None:
        self.are_filtered = False
        self._watchers: dict[object, Watcher] = {}
        self._filtered = _FilterTree()
        self._unfiltered: dict[object, None] = {}
        self._due: dict[object, None] = {}
        self._is_going_on = False
        self._prompt: list[Watcher] = []  # who looks at every change before anything else happens

    def __len__(self) -> int:
        return len(self._watchers)

    @property
    def are_there(self) -> bool:
        """Whether anybody looks, or is about to."""
        return bool(self._watchers or self._prompt or self._due)

    def add(self, on_change: Watcher, filters: tuple[str, ...] = ()) -> Callable[[], None]:
        """Call ``on_change`` from now on; returns the undo.

        With ``filters`` a commit of records that match none of them does not count.
        """
        key = object()
        self._watchers[key] = on_change
        if filters:
            self._filtered.add(filters, key)
            self.are_filtered = True
        else:
            self._unfiltered[key] = None

        def undo() -> None:
            if self._watchers.pop(key, None) is None:
                return
            self._due.pop(key, None)
            if filters:
                self._filtered.remove(filters, key)
                self.are_filtered = bool(self._filtered)
            else:
                del self._unfiltered[key]

        return undo

    def add_prompt(self, on_change: Watcher) -> None:
        """Call ``on_change`` at once after each change, for as long as there is the stream."""
        self._prompt.append(on_change)

    def wake(self) -> None:
        """Let all watchers look again; one that fails does so behind the others of its turn."""
        self._call(self._watchers)

    def wake_for(self, subjects: Iterable[bytes]) -> None:
        """Let those look again who watch one of these subjects."""
        if not self.are_filtered:
            self._call(self._watchers)
            return
        concerned = dict(self._unfiltered)
        for count, subject in enumerate(subjects):
            if count == FEW_SUBJECTS:
                self._call(self._watchers)
                return
            concerned.update(dict.fromkeys(self._filtered.matching(subject)))
        self._call(concerned)

    def _call(self, keys: Collection[object]) -> None:
        for on_change in self._prompt:
            on_change()
        if not keys:
            return
        if not self._due and len(keys) <= TURN:
            self._let_look(keys)
            return
        self._due.update(dict.fromkeys(keys))
        if not self._is_going_on:
            self._turn()

    def _turn(self) -> None:
        """Call some of those who are due, and the rest later; without a loop there is no later."""
        loop = _running_loop()
        most = len(self._due) if loop is None else TURN
        self._is_going_on = False
        turn = [key for key, _ in zip(self._due, range(most), strict=False)]
        for key in turn:
            del self._due[key]
        if self._due and loop is not None:
            self._is_going_on = True
            loop.call_soon(self._turn)
        self._let_look(turn)

    def _let_look(self, keys: Iterable[object]) -> None:
        failed: Exception | None = None
        for key, on_change in [(key, self._watchers[key]) for key in keys]:
            try:
                if key in self._watchers:
                    on_change()
            except Exception as error:
                failed = error
        if failed is not None:
            raise failed


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class _FilterNode:
    """A token of filters: what follows it, and who watches what ends here."""

    __slots__ = ("below", "keys")

    def __init__(self) -> None:
        self.below: dict[bytes, _FilterNode] = {}
        self.keys: dict[object, None] = {}


class _FilterTree:
    """Watchers by their filters, token by token."""

    def __init__(self) -> None:
        self._root = _FilterNode()

    def __bool__(self) -> bool:
        return bool(self._root.below)

    def add(self, filters: Iterable[str], key: object) -> None:
        for each in filters:
            node = self._root
            for token in each.encode().split(b"."):
                node = node.below.setdefault(token, _FilterNode())
            node.keys[key] = None

    def remove(self, filters: Iterable[str], key: object) -> None:
        for each in filters:
            tokens = each.encode().split(b".")
            path = [self._root]
            for token in tokens:
                path.append(path[-1].below[token])
            path[-1].keys.pop(key, None)
            for above, token in zip(reversed(path[:-1]), reversed(tokens), strict=True):
                node = above.below[token]
                if node.keys or node.below:
                    break
                del above.below[token]

    def matching(self, subject: bytes) -> Iterator[object]:
        """Return who watches a subject; who has several filters may come more than once."""
        nodes = [self._root]
        for token in subject.split(b"."):
            following = list[_FilterNode]()
            for node in nodes:
                if (rest := node.below.get(b">")) is not None:
                    yield from rest.keys
                following += (node.below[each] for each in (token, b"*") if each in node.below)
            nodes = following
            if not nodes:
                return
        for node in nodes:
            yield from node.keys
