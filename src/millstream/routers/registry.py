"""Routers: all routers of all accounts, kept by control frames, run as their sources grow."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Protocol

import msgspec

from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.errors import MillstreamError, NotHere, Throttled
from millstream.routers import forwarder
from millstream.routers.errors import RouterCycle, RouterNotFound, RouterRepointed, SecondSource
from millstream.routers.forwarder import PAGE_BYTES, PAGE_RECORDS, Forwarder
from millstream.routers.graph import find_cycle, other_source
from millstream.routers.hops import Hops
from millstream.routers.router import GUARANTEES, Definition, Router, RouterProgress
from millstream.routers.source_routers import SourceRouters
from millstream.routers.tag_filter import TagFilter
from millstream.store.log import derived
from millstream.store.log.derived import DERIVE
from millstream.store.log.log import Committed, Durability
from millstream.store.recovery.recovery import Recovery
from millstream.streams.catalog import Catalog
from millstream.streams.stream import Stream, settle

log = logging.getLogger(__name__)

ROUTER_SET = 31
ROUTER_GONE = 32
SECTION = "routers"

RETRY_AFTER = 1.0
MOST_ROUTERS = 64  # in one turn
MOST_STEPS = 64  # that a reader waits for; what is behind by more goes on in the background


class RouterStore(forwarder.ForwarderStore, Protocol):
    """What the registry asks of the store."""

    def control(
        self, kind: int, log_id: int, body: bytes, done: Committed, sync: bool = True
    ) -> None:
        """Write a control frame."""
        ...


class RouterRequest(msgspec.Struct, frozen=True):
    """What somebody wants a router to be."""

    account: str
    name: str
    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    filter: TagFilter | None = None
    allow_cycle: bool = False
    guarantee: str = GUARANTEES[0]


class _Set(msgspec.Struct, frozen=True):
    definition: Definition
    cursor: int


class _Gone(msgspec.Struct, frozen=True):
    id: int


class _SavedRouter(msgspec.Struct, frozen=True):
    definition: Definition
    progress: RouterProgress


class _RouterSection(msgspec.Struct, frozen=True):
    next_id: int
    routers: list[_SavedRouter]
    hops: dict[int, list[tuple[int, int, int]]] = {}


class Saved(msgspec.Struct):
    """A router while it is being recovered."""

    definition: Definition
    progress: RouterProgress


class Routers:
    """Between streams of one account each; a router goes with its source or destination.

    ``later`` runs the routers of a source when it is their turn.
    """

    def __init__(
        self,
        catalog: Catalog,
        clock: Clock,
        timers: Timers,
        store: RouterStore | None,
        *,
        most: int = 10_000,
        later: Callable[[Stream, Callable[[], int]], None] | None = None,
    ) -> None:
        self._catalog = catalog
        self._timers = timers
        self._store = store
        self._forwarder = Forwarder(store, clock, self._settled)
        self._later = later or self._next_turn
        self.most = most
        self._routers: dict[tuple[str, str], Router] = {}
        self._from: dict[int, SourceRouters[Router]] = {}
        self._into: dict[int, list[Router]] = {}
        self._unwatch: dict[int, Callable[[], None]] = {}  # sources that are listened to
        self._dirty: set[int] = set()
        self._resting: set[int] = set()  # sources whose routers let writers go first
        self._next_id = 1
        self._stopped = False
        self._changing = asyncio.Lock()
        catalog.listen(self._stream_changed)

    def __len__(self) -> int:
        return len(self._routers)

    # -- looks -------------------------------------------------------------------------------

    def get(self, name: str, account: str) -> Router:
        """Return a router; raises RouterNotFound."""
        found = self._routers.get((account, name))
        if found is None:
            raise RouterNotFound(name)
        return found

    def find(self, name: str, account: str) -> Router | None:
        """Return a router if there is one."""
        return self._routers.get((account, name))

    def all_of(self, account: str) -> list[Router]:
        """Return the account's routers by name."""
        found = (r for (owner, _), r in self._routers.items() if owner == account)
        return sorted(found, key=lambda router: router.definition.name.encode())

    def touching(self, stream: Stream) -> list[Router]:
        """Return the routers from or into a stream, by name."""
        of = (*self._from.get(stream.incarnation, ()), *self._into.get(stream.incarnation, ()))
        return sorted(of, key=lambda router: router.definition.name.encode())

    def feed(self, stream: Stream) -> bool:
        """Say whether any router copies into a stream."""
        return stream.incarnation in self._into

    # -- changes -----------------------------------------------------------------------------

    async def put(
        self,
        wish: RouterRequest,
        streams: Callable[[], Awaitable[tuple[Stream, Stream]]],
    ) -> tuple[Router, bool]:
        """Create a router, or change how one goes on; ``streams`` makes what is missing.

        Nothing is made before every check has passed. A new router begins at the source's head.
        """
        async with self._changing:
            known = self._check(wish)
            source, dest = await streams()
            router_id = known.definition.id if known else self._take_id()
            definition = Definition(
                wish.account,
                wish.name,
                router_id,
                known.definition.version + 1 if known else 1,
                source.name,
                source.incarnation,
                dest.name,
                dest.incarnation,
                wish.preserve_node,
                wish.preserve_tag,
                (wish.filter.op, wish.filter.value) if wish.filter else None,
                wish.allow_cycle,
                wish.guarantee,
            )
            if known is not None:
                while known.is_busy:  # what is on its way belongs to the definition before
                    await known.wait()
            cursor = known.cursor if known else source.log.committed_seq
            known_again = known if known is not None and not known.is_gone else None
            await self._write(ROUTER_SET, dest.incarnation, _Set(definition, cursor))
            if source.is_closed or dest.is_closed:
                raise RouterNotFound(wish.name)  # went while it was written; so does the router
            if known_again is not None:
                known_again.redefine(definition)
                router = known_again
            else:
                router = self._add(Router(definition, source, dest, RouterProgress(cursor)))
            self._again([router])
            return router, known is None

    def _check(self, wish: RouterRequest) -> Router | None:
        known = self._routers.get((wish.account, wish.name))
        edges = [
            (router.definition.source, router.definition.dest)
            for router in self.all_of(wish.account)
            if router is not known
        ]
        if other_source(edges, wish.source, wish.dest):
            raise SecondSource(wish.dest)
        if known is not None:
            before = known.definition
            if (before.source, before.dest) != (wish.source, wish.dest):
                raise RouterRepointed(wish.name, before.source, before.dest)
        elif self.most and len(self._routers) >= self.most:
            raise Throttled("max_routers", self.most)
        if not wish.allow_cycle:
            cycle = find_cycle(edges, wish.source, wish.dest)
            if cycle is not None:
                raise RouterCycle(cycle)
        return known

    async def delete(self, name: str, account: str) -> bool:
        """Remove a router; what it copied stays. False when there was none."""
        async with self._changing:
            router = self._routers.get((account, name))
            if router is None:
                return False
            one = router.definition
            await self._write(ROUTER_GONE, one.dest_id, _Gone(one.id))
            self._remove(router)
            return True

    async def _write(self, kind: int, log_id: int, body: msgspec.Struct) -> None:
        if self._store is None:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._store.control(kind, log_id, msgspec.json.encode(body), partial(settle, done))
        await done

    def _take_id(self) -> int:
        taken, self._next_id = self._next_id, self._next_id + 1
        return taken

    def _add(self, router: Router) -> Router:
        one = router.definition
        self._routers[one.account, one.name] = router
        self._from.setdefault(one.source_id, SourceRouters()).append(router)
        self._into.setdefault(one.dest_id, []).append(router)
        if one.source_id not in self._unwatch:
            self._unwatch[one.source_id] = router.source.watch(partial(self._grown, router.source))
            self._forwarder.hops.setdefault(one.source_id, Hops())
        router.claim()
        return router

    def _remove(self, router: Router) -> None:
        one = router.definition
        self._routers.pop((one.account, one.name), None)
        indexes: tuple[tuple[dict[int, Any], int], ...] = (
            (self._from, one.source_id),
            (self._into, one.dest_id),
        )
        for index, key in indexes:
            if router in index.get(key, ()):
                index[key].remove(router)
                if not index[key]:
                    del index[key]
        if one.source_id not in self._from and one.source_id in self._unwatch:
            self._unwatch.pop(one.source_id)()
            self._forwarder.hops.pop(one.source_id, None)
        router.end()

    def _stream_changed(self, stream: Stream, alive: bool) -> None:
        """Let routers go with their streams; one that changed may take records again."""
        if alive:
            for router in self._into.get(stream.incarnation, ()):
                router.is_blocked = False
                self._again([router])
            return
        gone = (*self._from.get(stream.incarnation, ()), *self._into.get(stream.incarnation, ()))
        for router in gone:
            self._remove(router)

    # -- forwarding --------------------------------------------------------------------------

    async def catch_up(self, dest: Stream) -> None:
        """Return once the destination shows what its sources held when this was called."""
        for router in list(self._into.get(dest.incarnation, ())):
            await self.drive(router)

    async def drive(self, router: Router) -> None:
        """Return once a router is as far as its source is now, or can go no further."""
        goal = router.source.log.committed_seq
        for _ in range(MOST_STEPS):
            if router.cursor >= goal or router.is_gone or self._stopped:
                return
            before = router.cursor
            if not router.is_busy:
                self._forwarder.step(router.source, [router])
            if router.is_busy:
                await router.wait()
            if router.cursor == before:
                return

    def _mark(self, source: Stream) -> None:
        """Have the routers of a source run when it is their turn."""
        key = source.incarnation
        line = self._from.get(key)
        if line is None or line.is_idle or self._stopped:
            return
        if key not in self._dirty and key not in self._resting:
            self._dirty.add(key)
            self._later(source, partial(self._run, source))

    def _grown(self, source: Stream) -> None:
        line = self._from.get(source.incarnation)
        if line is not None:
            line.grew()
            self._mark(source)

    def _again(self, routers: Sequence[Router]) -> None:
        """Let routers of any sources have a turn."""
        for source, some in groupby(routers, lambda router: router.source):
            line = self._from.get(source.incarnation)
            if line is not None:
                line.again(router for router in some if router.is_ready)
                self._mark(source)

    def _next_turn(self, source: Stream, run: Callable[[], object]) -> None:
        self._timers.after(0.0, partial(_ignore, run))

    def _run(self, source: Stream) -> int:
        """Take a turn; returns how many routers moved. The others have the turns that follow."""
        self._dirty.discard(source.incarnation)
        line = self._from.get(source.incarnation)
        ready = line.next(MOST_ROUTERS) if line is not None and not self._stopped else []
        if line is not None and ready:
            began = self._timers.clock.monotonic()
            line.first(self._forwarder.step(source, ready))
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
            self._timers.after(RETRY_AFTER, partial(self._again, routers))
        else:
            for source in {router.source for router in routers}:
                self._forget_hops(source)
            self._release(routers)
            self._again(routers)
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
            self._again([router])

        undo = router.dest.watch(changed)

    def _forget_hops(self, source: Stream) -> None:
        hops = self._forwarder.hops.get(source.incarnation)
        if hops:
            passed = (router.cursor for router in self._from.get(source.incarnation, ()))
            hops.forget_through(min(passed, default=0))

    async def finish(self) -> None:
        """Copy what can be copied once more, then nothing: the server stops."""
        for router in list(self._routers.values()):
            await self.drive(router)
        self._stopped = True
        for router in list(self._routers.values()):
            if router.is_busy:
                await router.wait()

    # -- persistence -------------------------------------------------------------------------

    def recover(self, found: Recovery) -> None:
        """Bring the routers back, once the catalog knows its streams again."""
        saved: dict[int, Saved] = {}
        if section := found.sections.get(SECTION):
            kept = msgspec.json.decode(section, type=_RouterSection)
            self._next_id = kept.next_id
            saved = {s.definition.id: Saved(s.definition, s.progress) for s in kept.routers}
            for stream, items in kept.hops.items():
                hops = self._forwarder.hops.setdefault(stream, Hops())
                for item in items:
                    hops.add(*item)
        for control in found.controls:
            if control.kind == ROUTER_SET:
                self._replay_set(saved, msgspec.json.decode(control.body, type=_Set))
            elif control.kind == ROUTER_GONE:
                saved.pop(msgspec.json.decode(control.body, type=_Gone).id, None)
            elif control.kind == DERIVE:
                for part in derived.decode(control.body).parts:
                    if part.router in saved:
                        self._replay_part(saved[part.router], part)
        self._open(saved.values())

    def _replay_set(self, saved: dict[int, Saved], body: _Set) -> None:
        one = body.definition
        self._next_id = max(self._next_id, one.id + 1)
        known = saved.get(one.id)
        if known is None:
            saved[one.id] = Saved(one, RouterProgress(body.cursor))
        elif one.version > known.definition.version:
            known.definition = one

    def _replay_part(self, saved: Saved, part: derived.DerivedPart) -> None:
        done = saved.progress
        if part.passed > done.cursor:
            saved.progress = RouterProgress(
                part.passed, done.forwarded + part.count + part.lost, max(done.tail, part.last)
            )
        if part.hops:
            hops = self._forwarder.hops.setdefault(saved.definition.dest_id, Hops())
            hops.add(part.base, part.last, part.hops)

    def _open(self, saved: Iterable[Saved]) -> None:
        streams = {stream.incarnation: stream for stream in self._catalog.everything()}
        for one in saved:
            source = streams.get(one.definition.source_id)
            dest = streams.get(one.definition.dest_id)
            if source is None or dest is None:
                continue  # went with its stream
            progress = one.progress
            if source.log.durability is Durability.EPHEMERAL:  # a power cut may take its head back
                cursor = min(progress.cursor, source.log.committed_seq)
                progress = RouterProgress(cursor, progress.forwarded, progress.tail)
            router = self._add(Router(one.definition, source, dest, progress))
            if router.definition.stamp:
                self._find_held(router)
        for stream in list(self._forwarder.hops):
            if stream not in self._from:
                del self._forwarder.hops[stream]
        for routers in self._from.values():
            self._grown(routers[0].source)

    def _find_held(self, router: Router) -> None:
        """Find copies that outlived the frame which told of them: they are not made again."""
        one, at = router.definition, router.tail + 1
        while at <= router.dest.log.committed_seq:
            try:
                frames = router.dest.read(at, PAGE_RECORDS, PAGE_BYTES)
            except NotHere as missing:  # moved: a snapshot has told of what is in there
                at = missing.next_seq
                continue
            if not len(frames):
                return
            for record in frames if derived.MARK.encode() in frames.raw() else ():
                seq = derived.origin_of(record[7], one.name, one.source_id)
                if seq > router.cursor:
                    router.held.add(seq, seq)
            at = frames.last_seq + 1

    def section(self) -> bytes:
        """Return the snapshot's section."""
        kept = [_SavedRouter(r.definition, r.progress) for r in self._routers.values()]
        hops = {s: h.items() for s, h in self._forwarder.hops.items() if h}
        return msgspec.json.encode(_RouterSection(self._next_id, kept, hops))


def _nothing() -> None:
    pass


def _ignore(run: Callable[[], object]) -> None:
    run()
