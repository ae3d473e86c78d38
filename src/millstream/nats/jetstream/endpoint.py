"""JetStream: the API of one account, from request subject to answer.

``build`` makes one, which starts once streams and consumers are recovered.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from millstream.accounts.account import Account, StreamLimits
from millstream.errors import Forbidden, MillstreamError
from millstream.kernel._batch import Batch
from millstream.nats.jetstream import (
    cluster,
    consumers,
    messages,
    streams,
)
from millstream.nats.jetstream.asker import ASKER
from millstream.nats.jetstream.domain import DomainGate
from millstream.nats.jetstream.errors import ApiError, as_error, check_level
from millstream.nats.jetstream.serving.advisories import Advisories
from millstream.nats.jetstream.serving.direct_streams import DirectStreams
from millstream.nats.jetstream.serving.request_tasks import RequestTasks
from millstream.nats.jetstream.serving.shared_parts import SharedParts
from millstream.nats.jetstream.serving.sourcing_consumers import REQUEST_HEADERS, headers_of
from millstream.streams.config.times import ZERO_TIME
from millstream.streams.stream import Stream

if TYPE_CHECKING:
    from millstream.kernel._interest import Interest
    from millstream.streams.config.config import StreamConfig

log = logging.getLogger(__name__)

PREFIX = b"$JS.API."
MOST_IN_FLIGHT = 10_000

Handler = Callable[..., Awaitable[dict[str, Any]]]


class ApiRoute(NamedTuple):
    """Who answers a request, under which type, and which fields a failure carries as well."""

    type: str
    handler: Handler
    arguments: range  # how many tokens follow the name
    failed: dict[str, Any]


async def _snapshot(js: "JetStream", body: bytes, name: str) -> dict[str, Any]:
    from millstream.nats.jetstream import snapshots  # archives bring many modules along

    return await snapshots.snapshot(js, body, name)


async def _restore(js: "JetStream", body: bytes, name: str) -> dict[str, Any]:
    from millstream.nats.jetstream import snapshots

    return await snapshots.restore(js, body, name)


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
    "STREAM.SNAPSHOT": ApiRoute("stream_snapshot", _snapshot, _ONE, {}),
    "STREAM.RESTORE": ApiRoute("stream_restore", _restore, _ONE, {"deliver_subject": ""}),
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


class JetStream:
    """Streams, consumers and their API for one account; a sink for its requests."""

    def __init__(
        self,
        parts: SharedParts,
        account: str,
        interest: "Interest",
        configured: Callable[[], Account] | None = None,
    ) -> None:
        """Serve one account; ``configured`` returns the account with the limits of this moment."""
        self.parts = parts
        self.hub = parts.hub
        self.terms = parts.terms
        self.account = account
        self.interest = interest
        self.catalog = parts.catalog
        self.consumers = parts.consumers
        self.advisories = Advisories(parts, account, interest)
        self.requests = 0
        self.errors = 0
        self._configured = configured or partial(Account, account, jetstream=True)
        self._direct = DirectStreams(parts, account, interest)
        self._tasks = RequestTasks(
            f"the JetStream API of {account}", parts.loop, parts.supervisor, self._begin_all
        )
        self._handles: list[int] = []
        self._in_flight = 0

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Take requests; streams and consumers are recovered."""
        self.catalog.listen(self._stream_changed)
        self.catalog.listen_abandoned(self._tell_abandoned)
        for stream in self.streams():
            self._stream_changed(stream, True)
        self._tasks.start()
        for pattern in PATTERNS:
            self._handles.append(self.interest.add_sink(PREFIX + pattern, self, costly=True))
        if self.terms.domain:
            gate = DomainGate(self.terms.domain, self.hub, self.interest)
            self._handles.append(self.interest.add_sink(gate.pattern, gate))

    async def finish(self) -> None:
        """Take no more requests, and answer those under way."""
        for handle in self._handles:
            self.interest.remove_sink(handle)
        self._handles = []
        await self._tasks.finish()

    def _stream_changed(self, stream: Stream, alive: bool) -> None:
        """Answer direct gets for a stream, or no more."""
        if stream.account != self.account or not stream.config.is_legal_stream:
            return
        self._direct.stream_changed(stream, alive)

    def _tell_abandoned(self, stream: Stream, batch_id: bytes, reason: str) -> None:
        if stream.account == self.account and stream.config.is_legal_stream:
            self.advisories.tell_abandoned(stream.name, batch_id, reason)

    @property
    def is_open(self) -> bool:
        """Whether the account's clients may use it; HTTP may keep topics here either way."""
        return self._configured().jetstream

    # -- what handlers ask -------------------------------------------------------------------

    def limits(self) -> StreamLimits:
        """Return what the account may use now."""
        return self._configured().stream_limits

    def tiers(self) -> Mapping[str, StreamLimits]:
        """Return what the account may use by replicas, nothing where that makes no difference."""
        return dict(self._configured().tiers)

    def streams(self) -> list[Stream]:
        """Return the streams that JetStream can name."""
        return [s for s in self.catalog.streams(self.account) if s.config.is_legal_stream]

    def now_ns(self) -> int:
        """Return the wall clock."""
        return self.parts.clock.time_ns()

    def check_deliver(self, subject: str, group: str) -> None:
        """Refuse to deliver where whoever asks may neither publish nor subscribe."""
        may_deliver = self.parts.clients.may_deliver
        if subject and not may_deliver(ASKER.get(), self.account, subject, group):
            raise Forbidden(f"deliveries to {subject!r} are not permitted")

    def check_copies(self, config: "StreamConfig") -> None:
        """Refuse to show records under other subjects to whoever must not hear them."""
        (captured, origins), targets = config.renamed(), config.published_to()
        may_copy = self.parts.clients.may_copy
        if (captured or origins or targets) and not may_copy(
            ASKER.get(), self.account, captured, origins, targets
        ):
            raise Forbidden(
                "the stream would show subjects that you may not subscribe to under other names, "
                "or publish where you may not: leave out republish, subject transforms and dead "
                "letters, or have somebody create it who may"
            )

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Let work go on behind an answer; it ends with the API at the latest."""
        self._tasks.spawn(work)

    # -- requests ----------------------------------------------------------------------------

    def deliver(self, batch: Batch) -> None:
        """Answer the requests of a batch, behind everything that came before them."""
        if not self.hub.defer(partial(self._begin_all, batch)):
            self._begin_all(batch)

    def _begin_all(self, batch: Batch) -> None:
        """Answer each request at once, or by a task of its own where that has to wait."""
        if self._tasks.failed:
            self._refuse_all(batch, self._tasks.failed)
            return
        if self._tasks.holds_early(batch):
            return
        for at in range(len(batch)):
            subject, reply, headers, payload, origin = batch.message(at)
            found = find_route(subject[len(PREFIX) :].decode("utf-8", "replace"))
            if found is None:
                continue  # the reference leaves unknown requests unanswered
            if self._in_flight >= MOST_IN_FLIGHT:
                log.warning("request dropped, too many are under way subject=%r", subject)
                self.advisories.tell_limit()
                continue
            self._in_flight += 1
            before = ASKER.set(origin)  # also for the task, if one is needed
            told = REQUEST_HEADERS.set(headers)
            try:
                self._tasks.begin(self._serve(subject, reply, headers, payload, *found))
            finally:
                REQUEST_HEADERS.reset(told)
                ASKER.reset(before)

    def _refuse_all(self, batch: Batch, why: str) -> None:
        for at in range(len(batch)):
            subject, reply, *_ = batch.message(at)
            found = find_route(subject[len(PREFIX) :].decode("utf-8", "replace"))
            if found is None or not reply:
                continue
            route = found[0]
            failure = {"code": 503, "err_code": 10008, "description": why}
            shown = {"type": f"io.nats.jetstream.api.v1.{route.type}_response", "error": failure}
            body = msgspec.json.encode({**shown, **route.failed})
            self.hub.publish(self.interest, reply, b"", b"", body)
        self.hub.flush()

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
            said, beside = await self._answer(route, headers, payload, arguments)
            answer = msgspec.json.encode(said)
        finally:
            self._in_flight -= 1
            self.requests += 1
        if reply:  # who does not want to hear of it has it carried out all the same
            self.hub.publish(self.interest, reply, b"", beside, answer)
        self.advisories.tell_audit(subject, payload, answer)
        self.hub.flush()

    async def _answer(
        self, route: ApiRoute, headers: bytes, payload: bytes, arguments: list[str]
    ) -> tuple[dict[str, Any], bytes]:
        """Return what to answer, and the headers that it goes out with."""
        shown = {"type": f"io.nats.jetstream.api.v1.{route.type}_response"}
        try:
            if not self.is_open:
                raise ApiError(503, 10039, "JetStream not enabled for account")
            check_level(headers)
            answer = await route.handler(self, payload, *arguments)
            return {**shown, **answer}, headers_of(answer)
        except MillstreamError as error:
            failure = as_error(error)
        except Exception:
            log.exception("request failed type=%s", route.type)
            failure = {"code": 500, "err_code": 10051, "description": "internal error"}
        self.errors += 1
        return {**shown, "error": failure, **route.failed}, b""


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
