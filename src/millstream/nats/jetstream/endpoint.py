"""JetStream: the API of one account, from request subject to answer.

``build`` makes one, calls ``start`` once the store is recovered, and ``close`` at the end.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from millstream.accounts.account import StreamLimits
from millstream.clock import Clock
from millstream.consumers import registry
from millstream.consumers.outlet import Outlet
from millstream.consumers.registry import Registry
from millstream.delivery.timers import Timers
from millstream.eager_task import begin
from millstream.errors import Forbidden, MillstreamError
from millstream.kernel._batch import Batch
from millstream.nats.jetstream import (
    cluster,
    consumers,
    messages,
    snapshots,
    streams,
)
from millstream.nats.jetstream.asker import ASKER, MayDeliver, anywhere
from millstream.nats.jetstream.direct_get import DirectGet
from millstream.nats.jetstream.domain import DomainGate
from millstream.nats.jetstream.errors import as_error, check_level
from millstream.nats.jetstream.server_limits import ServerLimits
from millstream.store.store import Store
from millstream.streams import catalog as catalog_module
from millstream.streams.catalog import Catalog
from millstream.streams.config.times import ZERO_TIME
from millstream.streams.stream import Stream
from millstream.supervisor import Supervisor

if TYPE_CHECKING:
    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest

log = logging.getLogger(__name__)

PREFIX = b"$JS.API."
AUDIT = "$JS.EVENT.ADVISORY.API"
MOST_IN_FLIGHT = 10_000

Handler = Callable[..., Awaitable[dict[str, Any]]]


class ApiRoute(NamedTuple):
    """Who answers a request, under which type, and which fields a failure carries as well."""

    type: str
    handler: Handler
    arguments: range  # how many tokens follow the name
    failed: dict[str, Any]


_PAGE = {"total": 0, "offset": 0, "limit": 0}
_NOT_PAUSED = {"paused": False, "pause_until": ZERO_TIME}
_ONE, _TWO = range(1, 2), range(2, 3)

ROUTES: dict[str, ApiRoute] = {
    "INFO": ApiRoute("account_info", streams.account_info, range(1), {}),
    "STREAM.CREATE": ApiRoute("stream_create", streams.create, _ONE, {}),
    "STREAM.UPDATE": ApiRoute("stream_update", streams.update, _ONE, {}),
    "STREAM.DELETE": ApiRoute("stream_delete", streams.delete, _ONE, {}),
    "STREAM.INFO": ApiRoute("stream_info", streams.info, _ONE, _PAGE),
    "STREAM.NAMES": ApiRoute("stream_names", streams.names, range(1), {**_PAGE, "streams": None}),
    "STREAM.LIST": ApiRoute("stream_list", streams.listing, range(1), {**_PAGE, "streams": []}),
    "STREAM.PURGE": ApiRoute("stream_purge", streams.purge, _ONE, {"purged": 0}),
    "STREAM.MSG.GET": ApiRoute("stream_msg_get", messages.get, _ONE, {}),
    "STREAM.MSG.DELETE": ApiRoute("stream_msg_delete", messages.delete, _ONE, {}),
    "STREAM.SNAPSHOT": ApiRoute("stream_snapshot", snapshots.snapshot, _ONE, {}),
    "STREAM.RESTORE": ApiRoute("stream_restore", snapshots.restore, _ONE, {"deliver_subject": ""}),
    "CONSUMER.DURABLE.CREATE": ApiRoute("consumer_create", consumers.create_durable, _TWO, {}),
    "CONSUMER.INFO": ApiRoute("consumer_info", consumers.info, _TWO, {}),
    "CONSUMER.DELETE": ApiRoute("consumer_delete", consumers.delete, _TWO, {}),
    "CONSUMER.PAUSE": ApiRoute("consumer_pause", consumers.pause, _TWO, _NOT_PAUSED),
    "CONSUMER.UNPIN": ApiRoute("consumer_unpin", consumers.unpin, _TWO, {}),
    "CONSUMER.RESET": ApiRoute("consumer_reset", consumers.reset, _TWO, {"reset_seq": 0}),
    "STREAM.LEADER.STEPDOWN": ApiRoute("stream_leader_stepdown", cluster.of_stream, _ONE, {}),
    "STREAM.PEER.REMOVE": ApiRoute("stream_remove_peer", cluster.of_stream, _ONE, {}),
    "STREAM.PEER.EVACUATE": ApiRoute("stream_evacuate_peer", cluster.of_stream, _ONE, {}),
    "STREAM.CANCEL_MOVE": ApiRoute("stream_cancel_move", cluster.of_stream, _ONE, {}),
    "CONSUMER.LEADER.STEPDOWN": ApiRoute("consumer_leader_stepdown", cluster.of_consumer, _TWO, {}),
    "CONSUMER.NAMES": ApiRoute("consumer_names", consumers.names, _ONE, {**_PAGE, "consumers": []}),
    "CONSUMER.LIST": ApiRoute("consumer_list", consumers.listing, _ONE, {**_PAGE, "consumers": []}),
}

_EPHEMERAL = ApiRoute("consumer_create", consumers.create_ephemeral, _ONE, {})
_NAMED = ApiRoute("consumer_create", consumers.create, range(2, 1000), {})


def find_route(operation: str) -> tuple[ApiRoute, list[str]] | None:
    """Return who answers ``STREAM.INFO.ORDERS`` and the arguments in it, None when nobody does."""
    tokens = operation.split(".")
    if tokens[:2] == ["CONSUMER", "CREATE"]:
        route = _EPHEMERAL if len(tokens) == 3 else _NAMED
        return (route, tokens[2:]) if len(tokens) - 2 in route.arguments else None
    for size in (3, 2, 1):
        found = ROUTES.get(".".join(tokens[:size]))
        if found is not None and len(tokens) - size in found.arguments:
            return found, tokens[size:]
    return None


def _unknown_client(_cid: int) -> dict[str, Any]:
    return {}


class JetStream:
    """Streams, consumers and their API for one account; a sink for its requests."""

    def __init__(
        self,
        hub: "Hub",
        interest: "Interest",
        store: Store,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        timers: Timers,
        *,
        catalog: Catalog | None = None,
        account: str = "$G",
        interests: "Mapping[str, Interest] | None" = None,
        consumers: Registry | None = None,
        server_name: str = "",
        domain: str = "",
        supervisor: Supervisor | None = None,
    ) -> None:
        """Serve one account; ``interests`` are those of all that share catalog and consumers.

        Whoever is given ``consumers`` only serves: it neither replays nor closes what it shares.
        """
        spaces = interests if interests is not None else {account: interest}
        self.account = account
        self.catalog = catalog or Catalog(store, clock, timers, hub, spaces)
        self._owns = consumers is None
        self.consumers = consumers or Registry(self.catalog, store, clock, timers, hub, spaces)
        self._timers = timers
        self.domain = domain
        self.outlet = Outlet(hub, interest, clock)
        self.may_deliver: MayDeliver = anywhere
        # What is known of the client behind a connection; whoever keeps sessions sets it.
        self.client_of: Callable[[int], dict[str, Any]] = _unknown_client
        self.limits: Callable[[], StreamLimits] = StreamLimits
        self.tiers: Callable[[], Mapping[str, StreamLimits]] = dict
        self.server_limits = ServerLimits()
        self.is_strict = True  # about fields of requests that there are not
        self.system: Callable[[], Interest | None] = _no_system  # the system account's subjects
        self.requests = 0
        self.errors = 0
        self._hub = hub
        self._interest = interest
        self._store = store
        self._clock = clock
        self._supervisor = supervisor or Supervisor()
        self._server_name = server_name
        self._loop = loop
        self._handles: list[int] = []
        self._direct: dict[int, list[int]] = {}
        self._direct_of_origins: dict[int, list[int]] = {}
        self._mirrors: dict[int, Stream] = {}
        self._group: asyncio.TaskGroup | None = None  # from the loop's first turn on
        self._early: list[Batch] = []  # came before that
        self._runner: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._failed = ""  # why no request is served any more
        self._in_flight = 0
        self._spawned: set[asyncio.Task[None]] = set()

    # -- life --------------------------------------------------------------------------------

    def check_deliver(self, subject: str, group: str) -> None:
        """Refuse to deliver where whoever asks may neither publish nor subscribe."""
        if subject and not self.may_deliver(ASKER.get(), self.account, subject, group):
            raise Forbidden(f"deliveries to {subject!r} are not permitted")

    def beside(self, account: str, interest: "Interest") -> "JetStream":
        """Return the API of another account over the same catalog, consumers and store."""
        other = JetStream(
            self._hub,
            interest,
            self._store,
            self._clock,
            self._loop,
            self._timers,
            catalog=self.catalog,
            account=account,
            consumers=self.consumers,
            server_name=self._server_name,
            domain=self.domain,
            supervisor=self._supervisor,
        )
        other.server_limits, other.system = self.server_limits, self.system
        other.is_strict = self.is_strict
        other.may_deliver = self.may_deliver
        other.client_of = self.client_of
        return other

    def start(self) -> None:
        """Replay what the store recovered, then capture, serve consumers and take requests."""
        if self._owns:
            self._replay()
        self.catalog.listen(self._stream_changed)
        self.catalog.listen_abandoned(self._tell_abandoned)
        if self._owns:
            self.catalog.capture()
        for stream in self.streams():
            self._stream_changed(stream, True)
        if self._owns:
            self.consumers.open()
        self._runner = self._loop.create_task(self._run())
        name = f"the JetStream API of {self.account}"
        self._supervisor.task(name, self._runner, self._ended.is_set, self._run_ended)
        for pattern in PATTERNS:
            self._handles.append(self._interest.add_sink(PREFIX + pattern, self))
        if self.domain:
            gate = DomainGate(self.domain, self._hub, self._interest)
            self._handles.append(self._interest.add_sink(gate.pattern, gate))

    def _replay(self) -> None:
        found = self._store.recovery
        self.catalog.replay(found.sections.get(catalog_module.SECTION), found.controls)
        self.consumers.replay(found.sections.get(registry.SECTION), found.controls)

    def sections(self) -> dict[str, bytes]:
        """Return what the store's snapshots keep for us."""
        return {
            catalog_module.SECTION: self.catalog.section(),
            registry.SECTION: self.consumers.section(),
        }

    async def finish(self) -> None:
        """Take no more requests, and answer those under way."""
        for handle in self._handles:
            self._interest.remove_sink(handle)
        self._handles = []
        self._ended.set()
        for task in list(self._spawned):
            task.cancel()
        if self._runner is not None:
            await asyncio.wait([self._runner])

    async def close(self) -> None:
        """Finish, and send waiting consumers away; nothing waits here where it is finished."""
        await self.finish()
        if self._owns:
            self.consumers.close()
            self.catalog.close()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            for batch in self._early:
                self._begin_all(batch)
            self._early.clear()
            await self._ended.wait()

    def _run_ended(self, error: BaseException) -> None:
        """Answer every request with an error from now on, those that came early first."""
        self._failed = f"the JetStream API has failed ({type(error).__name__}): restart the server"
        self._group = None
        early, self._early = self._early, []
        for batch in early:
            self._begin_all(batch)

    def _refuse_all(self, batch: Batch) -> None:
        for at in range(len(batch)):
            subject, reply, *_ = batch.message(at)
            found = find_route(subject[len(PREFIX) :].decode("utf-8", "replace"))
            if found is None or not reply:
                continue
            route = found[0]
            failure = {"code": 503, "err_code": 10008, "description": self._failed}
            shown = {"type": f"io.nats.jetstream.api.v1.{route.type}_response", "error": failure}
            body = msgspec.json.encode({**shown, **route.failed})
            self._hub.publish(self._interest, reply, b"", b"", body)
        self._hub.flush()

    # -- what handlers ask -------------------------------------------------------------------

    @property
    def hub(self) -> "Hub":
        """The hub that carries requests and answers."""
        return self._hub

    def streams(self) -> list[Stream]:
        """Return the streams that JetStream can name."""
        return [s for s in self.catalog.streams(self.account) if s.config.is_legal_stream]

    def now_ns(self) -> int:
        """Return the wall clock."""
        return self._clock.time_ns()

    @property
    def interest(self) -> "Interest":
        """The subjects of the account."""
        return self._interest

    @property
    def timers(self) -> Timers:
        """What runs at a time."""
        return self._timers

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Let work go on behind an answer; it ends with the API at the latest."""
        assert self._group is not None
        task = self._group.create_task(_to_its_end(work))
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)

    def tell(self, kind: str, type_name: str, /, **fields: Any) -> None:
        """Publish an advisory about something that a client asked for."""
        about = {**fields, "client": self._client(), **self._domain_field()}
        self.outlet.event(f"$JS.EVENT.ADVISORY.{kind}", f"advisory.v1.{type_name}", **about)

    def _client(self) -> dict[str, Any]:
        found = self.client_of(ASKER.get())
        return (
            {"acc": self.account, **found, "server": self._server_name}
            if found
            else {"acc": self.account}
        )

    def _domain_field(self) -> dict[str, Any]:
        return {"domain": self.domain} if self.domain else {}

    def tell_stream(self, kind: str, action: str, stream: str) -> None:
        """Publish that a stream was created, updated or deleted."""
        subject = f"$JS.EVENT.ADVISORY.STREAM.{kind}.{stream}"
        self.outlet.event(subject, "advisory.v1.stream_action", stream=stream, action=action)

    def tell_consumer(self, kind: str, action: str, stream: str, consumer: str) -> None:
        """Publish that a consumer was created or deleted."""
        subject = f"$JS.EVENT.ADVISORY.CONSUMER.{kind}.{stream}.{consumer}"
        about = {"stream": stream, "consumer": consumer, "action": action}
        self.outlet.event(subject, "advisory.v1.consumer_action", **about)

    def _tell_abandoned(self, stream: Stream, batch_id: bytes, reason: str) -> None:
        """Tell the account of a batch that was given up, and the system account too."""
        if stream.account != self.account or not stream.config.is_legal_stream:
            return
        subject = f"$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.{stream.name}"
        kind = "advisory.v1.stream_batch_abandoned"
        about = {
            "stream": stream.name,
            **self._domain_field(),
            "batch": batch_id.decode("utf-8", "replace"),
            "reason": reason,
        }
        self.outlet.event(subject, kind, **about)
        system = self.system()
        if system is not None:
            beside = Outlet(self._hub, system, self._clock)
            beside.event(subject, kind, account=self.account, **about)
        self._hub.flush()

    # -- requests ----------------------------------------------------------------------------

    def deliver(self, batch: Batch) -> None:
        """Answer the requests of a batch, behind everything that came before them."""
        if not self._hub.defer(partial(self._begin_all, batch)):
            self._begin_all(batch)

    def _begin_all(self, batch: Batch) -> None:
        """Answer each request at once, or by a task of its own where that has to wait."""
        group = self._group
        if self._failed:
            self._refuse_all(batch)
            return
        if group is None:
            self._early.append(batch)
            return
        for at in range(len(batch)):
            subject, reply, headers, payload, origin = batch.message(at)
            found = find_route(subject[len(PREFIX) :].decode("utf-8", "replace"))
            if found is None:
                continue  # the reference leaves unknown requests unanswered
            if self._in_flight >= MOST_IN_FLIGHT:
                log.warning("request dropped, too many are under way subject=%r", subject)
                self._tell_limit()
                continue
            self._in_flight += 1
            before = ASKER.set(origin)  # also for the task, if one is needed
            try:
                asked = self._serve(subject, reply, headers, payload, *found)
                begin(asked, lambda rest: group.create_task(_to_its_end(rest)))
            finally:
                ASKER.reset(before)

    def _tell_limit(self) -> None:
        self.outlet.event(
            "$JS.EVENT.ADVISORY.API.LIMIT_REACHED",
            "advisory.v1.api_limit_reached",
            server=self._server_name,
            domain=self.domain,
            dropped=1,
        )

    async def _serve(
        self,
        subject: bytes,
        reply: bytes,
        headers: bytes,
        payload: bytes,
        route: ApiRoute,
        arguments: list[str],
    ) -> None:
        try:
            answer = msgspec.json.encode(await self._answer(route, headers, payload, arguments))
        finally:
            self._in_flight -= 1
            self.requests += 1
        if reply:  # who does not want to hear of it has it carried out all the same
            self._hub.publish(self._interest, reply, b"", b"", answer)
        if self.outlet.is_heard(AUDIT.encode()):  # else nobody needs to know who asked
            self._tell_audit(subject, payload, answer)
        self._hub.flush()

    def _tell_audit(self, subject: bytes, payload: bytes, answer: bytes) -> None:
        self.outlet.event(
            AUDIT,
            "advisory.v1.api_audit",
            server=self._server_name,
            client=self._client(),
            subject=subject.decode("utf-8", "replace"),
            **({"request": payload.decode("utf-8", "replace")} if payload else {}),
            response=answer.decode(),
        )

    async def _answer(
        self, route: ApiRoute, headers: bytes, payload: bytes, arguments: list[str]
    ) -> dict[str, Any]:
        shown = {"type": f"io.nats.jetstream.api.v1.{route.type}_response"}
        try:
            check_level(headers)
            return {**shown, **await route.handler(self, payload, *arguments)}
        except MillstreamError as error:
            failure = as_error(error)
        except Exception:
            log.exception("request failed type=%s", route.type)
            failure = {"code": 500, "err_code": 10051, "description": "internal error"}
        self.errors += 1
        return {**shown, "error": failure, **route.failed}

    # -- direct get --------------------------------------------------------------------------

    def _stream_changed(self, stream: Stream, alive: bool) -> None:
        """Answer direct gets for the streams that allow them, and only for those."""
        if stream.account != self.account:
            return
        if not stream.config.is_legal_stream:
            return
        wanted = alive and stream.config.allow_direct
        self._answer_direct(self._direct, stream, wanted, stream.name, b"")
        if alive and stream.config.mirror is not None:
            self._mirrors[stream.incarnation] = stream
        elif self._mirrors.pop(stream.incarnation, None) is not None:
            self._answer_direct(self._direct_of_origins, stream, False, "", b"")
        for mirror in self._mirrors.values():
            self._answer_for_origin(mirror)

    def _answer_for_origin(self, mirror: Stream) -> None:
        """Let a mirror answer in its origin's name, where the origin does not do it itself."""
        config = mirror.config
        name = config.mirror["name"] if config.mirror is not None else ""
        origin = self.catalog.find(name, self.account)
        answers_itself = origin is not None and origin.config.allow_direct
        wanted = bool(name) and config.mirror_direct and not answers_itself
        self._answer_direct(self._direct_of_origins, mirror, wanted, name, b"mirrors")

    def _answer_direct(
        self, handles: dict[int, list[int]], stream: Stream, wanted: bool, name: str, queue: bytes
    ) -> None:
        """Answer direct gets under a name from a stream, or no more; one of a ``queue`` does."""
        if wanted == (stream.incarnation in handles):
            return
        for handle in handles.pop(stream.incarnation, []):
            self._interest.remove_sink(handle)
        if wanted:
            sink = DirectGet(stream, self._hub, self._interest, name)
            base = f"$JS.API.DIRECT.GET.{name}"
            handles[stream.incarnation] = [
                self._interest.add_sink(pattern.encode(), sink, queue)
                for pattern in (base, f"{base}.>")
            ]


async def _to_its_end(work: Awaitable[None]) -> None:
    """Wait for work; where it fails it fails alone, and the group of all goes on."""
    try:
        await work
    except Exception:
        log.exception("work for a request failed")


# Not one pattern for all: a pull or direct get that nobody serves must be a 503 at once.
PATTERNS = (
    b"*",
    b"STREAM.>",
    b"CONSUMER.CREATE.>",
    b"CONSUMER.DURABLE.>",
    b"CONSUMER.INFO.>",
    b"CONSUMER.DELETE.>",
    b"CONSUMER.NAMES.>",
    b"CONSUMER.LIST.>",
    b"CONSUMER.PAUSE.>",
    b"CONSUMER.UNPIN.>",
    b"CONSUMER.RESET.>",
    b"CONSUMER.LEADER.>",
)


def _no_system() -> None:
    """There is no system account."""
