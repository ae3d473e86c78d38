"""Routers: all routers of all accounts, kept by control frames, run as their sources grow."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Protocol

import msgspec

from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.errors import Throttled
from millstream.routers import forwarder
from millstream.routers.errors import RouterCycle, RouterNotFound, RouterRepointed, SecondSource
from millstream.routers.graph import find_cycle, other_source
from millstream.routers.router import GUARANTEES, Definition, Router, RouterProgress
from millstream.routers.saved_routers import (
    ROUTER_GONE,
    ROUTER_SET,
    RouterGone,
    RouterSet,
    SavedRouter,
    SavedRouters,
    encode_section,
    find_held,
)
from millstream.routers.tag_filter import TagFilter
from millstream.routers.turns import RouterTurns
from millstream.store.log.log import Committed, Durability
from millstream.store.recovery.recovery import Recovery
from millstream.streams.catalog import Catalog
from millstream.streams.stream import Stream, settle


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
        self._store = store
        self._turns = RouterTurns(timers, clock, store, later)
        self.most = most
        self._routers: dict[tuple[str, str], Router] = {}
        self._into: dict[int, list[Router]] = {}
        self._next_id = 1
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
        of = (*self._turns.of(stream), *self._into.get(stream.incarnation, ()))
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
            await self._write(ROUTER_SET, dest.incarnation, RouterSet(definition, cursor))
            if source.is_closed or dest.is_closed:
                raise RouterNotFound(wish.name)  # went while it was written; so does the router
            if known_again is not None:
                known_again.redefine(definition)
                router = known_again
            else:
                router = self._add(Router(definition, source, dest, RouterProgress(cursor)))
            self._turns.again([router])
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
            await self._write(ROUTER_GONE, one.dest_id, RouterGone(one.id))
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
        self._into.setdefault(one.dest_id, []).append(router)
        self._turns.add(router)
        router.claim()
        return router

    def _remove(self, router: Router) -> None:
        one = router.definition
        self._routers.pop((one.account, one.name), None)
        into = self._into.get(one.dest_id, [])
        if router in into:
            into.remove(router)
            if not into:
                del self._into[one.dest_id]
        self._turns.remove(router)
        router.end()

    def _stream_changed(self, stream: Stream, alive: bool) -> None:
        """Let routers go with their streams; one that changed may take records again."""
        if alive:
            for router in self._into.get(stream.incarnation, ()):
                router.is_blocked = False
                self._turns.again([router])
            return
        gone = (*self._turns.of(stream), *self._into.get(stream.incarnation, ()))
        for router in gone:
            self._remove(router)

    # -- forwarding --------------------------------------------------------------------------

    async def catch_up(self, dest: Stream) -> None:
        """Return once the destination shows what its sources held when this was called."""
        for router in list(self._into.get(dest.incarnation, ())):
            await self._turns.drive(router)

    async def drive(self, router: Router) -> None:
        """Return once a router is as far as its source is now, or can go no further."""
        await self._turns.drive(router)

    async def finish(self) -> None:
        """Copy what can be copied once more, then nothing: the server stops."""
        for router in list(self._routers.values()):
            await self._turns.drive(router)
        self._turns.is_stopped = True
        for router in list(self._routers.values()):
            if router.is_busy:
                await router.wait()

    # -- persistence -------------------------------------------------------------------------

    def recover(self, found: Recovery) -> None:
        """Bring the routers back, once the catalog knows its streams again."""
        saved = SavedRouters.of(found)
        self._next_id = saved.next_id
        self._turns.forwarder.hops.update(saved.hops)
        self._open(saved.routers.values())

    def _open(self, saved: Iterable[SavedRouter]) -> None:
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
                find_held(router)
        self._turns.begin()

    def section(self) -> bytes:
        """Return the snapshot's section."""
        return encode_section(self._next_id, self._routers.values(), self._turns.forwarder.hops)
