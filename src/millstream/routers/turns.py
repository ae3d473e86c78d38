"""RouterTurns: has routers copy when their sources have grown, a few at a time."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby

from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.errors import MillstreamError
from millstream.routers.forwarder import Forwarder, ForwarderStore
from millstream.routers.hops import Hops
from millstream.routers.router import Router
from millstream.routers.source_routers import SourceRouters
from millstream.streams.stream import Stream

log = logging.getLogger(__name__)

RETRY_AFTER = 1.0
MOST_ROUTERS = 64  # in one turn
MOST_STEPS = 64  # that a reader waits for; what is behind by more goes on in the background


class RouterTurns:
    """Listens to the sources of routers; ``later`` runs those of a source when it is their turn."""

    def __init__(
        self,
        timers: Timers,
        clock: Clock,
        store: ForwarderStore | None,
        later: Callable[[Stream, Callable[[], int]], None] | None,
    ) -> None:
        self.forwarder = Forwarder(store, clock, self._settled)
        self.is_stopped = False
        self._timers = timers
        self._later = later or self._next_turn
        self._lines: dict[int, SourceRouters[Router]] = {}
        self._unwatch: dict[int, Callable[[], None]] = {}  # sources that are listened to
        self._dirty: set[int] = set()
        self._resting: set[int] = set()  # sources whose routers let writers go first

    def of(self, source: Stream) -> Sequence[Router]:
        """Return the routers of a source."""
        return self._lines.get(source.incarnation, ())

    def add(self, router: Router) -> None:
        """Let a router stand in the line of its source."""
        source_id = router.definition.source_id
        self._lines.setdefault(source_id, SourceRouters()).append(router)
        if source_id not in self._unwatch:
            self._unwatch[source_id] = router.source.watch(partial(self._grown, router.source))
            self.forwarder.hops.setdefault(source_id, Hops())

    def remove(self, router: Router) -> None:
        """Take a router out; nobody listens to a source that has none."""
        source_id = router.definition.source_id
        line = self._lines.get(source_id)
        if line is not None and router in line:
            line.remove(router)
            if not line:
                del self._lines[source_id]
        if source_id not in self._lines and source_id in self._unwatch:
            self._unwatch.pop(source_id)()
            self.forwarder.hops.pop(source_id, None)

    def begin(self) -> None:
        """Let every router look at its source, after a start."""
        for stream in list(self.forwarder.hops):
            if stream not in self._lines:
                del self.forwarder.hops[stream]
        for line in self._lines.values():
            self._grown(line[0].source)

    async def drive(self, router: Router) -> None:
        """Return once a router is as far as its source is now, or can go no further."""
        goal = router.source.log.committed_seq
        for _ in range(MOST_STEPS):
            if router.cursor >= goal or router.is_gone or self.is_stopped:
                return
            before = router.cursor
            if not router.is_busy:
                self.forwarder.step(router.source, [router])
            if router.is_busy:
                await router.wait()
            if router.cursor == before:
                return

    def _mark(self, source: Stream) -> None:
        """Have the routers of a source run when it is their turn."""
        key = source.incarnation
        line = self._lines.get(key)
        if line is None or line.is_idle or self.is_stopped:
            return
        if key not in self._dirty and key not in self._resting:
            self._dirty.add(key)
            self._later(source, partial(self._run, source))

    def _grown(self, source: Stream) -> None:
        line = self._lines.get(source.incarnation)
        if line is not None:
            line.grew()
            self._mark(source)

    def again(self, routers: Sequence[Router]) -> None:
        """Let routers of any sources have a turn."""
        for source, some in groupby(routers, lambda router: router.source):
            line = self._lines.get(source.incarnation)
            if line is not None:
                line.again(router for router in some if router.is_ready)
                self._mark(source)

    def _next_turn(self, source: Stream, run: Callable[[], object]) -> None:
        self._timers.after(0.0, partial(_ignore, run))

    def _run(self, source: Stream) -> int:
        """Take a turn; returns how many routers moved. The others have the turns that follow."""
        self._dirty.discard(source.incarnation)
        line = self._lines.get(source.incarnation)
        ready = line.next(MOST_ROUTERS) if line is not None and not self.is_stopped else []
        if line is not None and ready:
            began = self._timers.clock.monotonic()
            line.first(self.forwarder.step(source, ready))
            if not line.is_idle:
                self._rest(source, self._timers.clock.monotonic() - began)
        return len(ready)

    def _rest(self, source: Stream, seconds: float) -> None:
        """Leave the loop to writers and readers for as long as the routers had it."""
        self._resting.add(source.incarnation)

        def go_on() -> None:
            self._resting.discard(source.incarnation)
            self._mark(source)

        self._timers.after(seconds, go_on)

    def _settled(self, routers: Sequence[Router], error: MillstreamError | None) -> None:
        if error is not None:
            log.warning("copies wait routers=%d error=%s", len(routers), error)
            self._timers.after(RETRY_AFTER, partial(self.again, routers))
        else:
            for source in {router.source for router in routers}:
                self._forget_hops(source)
            self._release(routers)
            self.again(routers)
        for router in routers:
            if router.is_blocked:
                self._wait_for_room(router)

    def _release(self, routers: Sequence[Router]) -> None:
        """Let sources that keep what somebody needs drop what was copied."""
        moved = [router for router in routers if router.source.config.retention == "interest"]
        for router in moved:
            router.claim()
        for source in {router.source for router in moved}:
            source.removal.drop_unclaimed()

    def _wait_for_room(self, router: Router) -> None:
        """Go on once the destination has changed: something may have gone from it."""
        undo: Callable[[], None] = _nothing

        def changed() -> None:
            undo()
            router.is_blocked = False
            self.again([router])

        undo = router.dest.watch(changed)

    def _forget_hops(self, source: Stream) -> None:
        hops = self.forwarder.hops.get(source.incarnation)
        if hops:
            passed = (router.cursor for router in self._lines.get(source.incarnation, ()))
            hops.forget_through(min(passed, default=0))


def _nothing() -> None:
    pass


def _ignore(run: Callable[[], object]) -> None:
    run()
