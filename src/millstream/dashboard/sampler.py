"""Sampler: looks at the server once a second, for everybody who watches."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.clock import Clock
from millstream.http.request import Caller

if TYPE_CHECKING:
    from millstream.streams.stream import Stream

PERIOD = 1.0
KEPT = 300  # looks at the server, for the charts of a page that has just been opened
MOST_STREAMS = 1000  # in one view; the page says how many more there are
SLICE = 100  # streams that are looked at in one turn of the loop
DONE = object()
LOOK_AGAIN = 10  # looks after which a view asks anew what it may see

Row = tuple[str, str, int, int, int, int, int, int]  # see ``row_of``
Visible = Callable[[Caller], Iterable["Stream"]]
Figures = Callable[[], dict[str, Any]]
CountConsumers = Callable[["Stream"], int]

_encode = msgspec.json.encode


def row_of(stream: "Stream", consumers: int) -> Row:
    """Return a stream in short: name, kind, messages, bytes, first, last, consumers, last time."""
    state = stream.state()
    kind = stream.config.metadata.get("millstream.type", "")
    return (
        stream.name,
        "queue" if kind == "queue" else stream.config.retention,
        state.messages,
        state.bytes,
        state.first_seq,
        state.last_seq,
        consumers,
        state.last_ts_ns // 1_000_000,
    )


class CredentialView:
    """What all who hold one credential see; a look is put into words once for all of them."""

    def __init__(self, caller: Caller, visible: Visible, count: CountConsumers) -> None:
        self.watchers = 0
        self._caller = caller
        self._visible = visible
        self._count = count
        self._streams: list[Stream] = []
        self._age = LOOK_AGAIN
        self._total = 0
        self._rows: dict[str, Row] = {}
        self._changed: list[Row] = []
        self._gone: list[str] = []
        self._words: dict[bool, bytes] = {}

    def forget(self) -> None:
        """Ask anew what there is to see at the next look."""
        self._age = LOOK_AGAIN

    def steps(self) -> Iterator[None]:
        """Look at every stream of the view, some at a time, and note what changed."""
        self._age += 1
        if self._age > LOOK_AGAIN:
            self._age = 0
            self._choose()
        before, rows = self._rows, dict[str, Row]()
        for at, stream in enumerate(self._streams):
            row = row_of(stream, self._count(stream))
            rows[row[0]] = row
            if at % SLICE == SLICE - 1:
                yield
        self._changed = [row for name, row in rows.items() if before.get(name) != row]
        self._gone = [name for name in before if name not in rows]
        self._rows = rows
        self._words = {}

    def _choose(self) -> None:
        found = list(self._visible(self._caller))
        self._total = len(found)
        if len(found) > MOST_STREAMS:
            found.sort(key=lambda stream: -stream.state().last_ts_ns)
            found = found[:MOST_STREAMS]
        self._streams = found

    def words(self, tick: int, time_ms: int, server: bytes, *, whole: bool) -> bytes:
        """Return the last look as an event: all of it, or what changed since the one before."""
        made = self._words.get(whole)
        if made is None:
            rows = list(self._rows.values()) if whole else self._changed
            told = {"n": tick, "t": time_ms, "full": whole, "total": self._total, "streams": rows}
            if self._gone and not whole:
                told["gone"] = self._gone
            body = _encode(told)
            if server and self._caller.sees_server:
                body = b'%b,"server":%b}' % (body[:-1], server)
            made = self._words[whole] = b"event: sample\ndata: %b\n\n" % body
        return made


class Sampler:
    """Takes one look a second: at the server always, at streams while somebody watches them."""

    def __init__(
        self, clock: Clock, figures: Figures, visible: Visible, count: CountConsumers
    ) -> None:
        self._clock = clock
        self._figures = figures
        self._visible = visible
        self._count = count
        self._views: dict[tuple[str, ...], CredentialView] = {}
        self._past: deque[bytes] = deque(maxlen=KEPT)
        self._waiting: list[Callable[[], None]] = []
        self._server = b""
        self._time_ms = 0
        self._looking: Iterator[None] | None = None
        self.tick = 0

    def look(self) -> None:
        """Take a look and tell everybody who waits for it; a few streams in a turn of the loop."""
        if self._looking is None:
            self._looking = self._steps()
            self._go_on()

    def _go_on(self) -> None:
        looking = self._looking
        try:
            if looking is not None and next(looking, DONE) is not DONE:
                asyncio.get_running_loop().call_soon(self._go_on)
                return
        except BaseException:
            self._looking = None
            raise
        self._looking = None

    def _steps(self) -> Iterator[None]:
        views = list(self._views.values())
        for view in views:
            yield from view.steps()
        self.tick += 1
        self._time_ms = self._clock.time_ns() // 1_000_000
        figures = self._figures()
        self._server = _encode(figures)
        kept = {name: value for name, value in figures.items() if isinstance(value, int | float)}
        self._past.append(_encode({"t": self._time_ms, **kept}))
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()

    def next_look(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` once, after the next look."""
        self._waiting.append(wake)

    def stop(self) -> None:
        """Wake everybody, so that they look around."""
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()

    def changed(self) -> None:
        """Note that a stream came or went."""
        for view in self._views.values():
            view.forget()

    def past(self) -> bytes:
        """Return the last looks at the server, as a list in JSON."""
        return b"[%b]" % b",".join(self._past)

    def join(self, caller: Caller) -> CredentialView:
        """Return the view of a credential, which has one watcher more from now on."""
        key = (caller.account, caller.key, *caller.prefixes)
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = CredentialView(caller, self._visible, self._count)
            for _ in view.steps():
                pass
        view.watchers += 1
        return view

    def leave(self, caller: Caller) -> None:
        """Count one watcher less; a view that nobody watches is not looked at."""
        key = (caller.account, caller.key, *caller.prefixes)
        view = self._views[key]
        view.watchers -= 1
        if not view.watchers:
            del self._views[key]

    def words(self, view: CredentialView, *, whole: bool) -> bytes:
        """Return the last look of a view as an event."""
        return view.words(self.tick, self._time_ms, self._server, whole=whole)
