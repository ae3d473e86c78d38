"""SocketRequests: carries out what a WebSocket's client asks for."""

from millstream.errors import BadRequest, Forbidden, MillstreamError, Unauthorized
from millstream.http.request import Caller
from millstream.topics import bodies
from millstream.topics.authorize import check_scope
from millstream.topics.context import Topics
from millstream.topics.directory import check_name
from millstream.topics.page.current_state import current_state
from millstream.topics.page.page import MOST_BYTES, MOST_RECORDS, Query
from millstream.topics.page.performance import Stopwatch
from millstream.topics.watch.socket_messages import (
    NULL,
    BadMessage,
    Message,
    PingRequest,
    Publish,
    Subscribe,
    Unsubscribe,
    answer,
    read_message,
    refusal,
)
from millstream.topics.watch.subscriptions import Subscriptions
from millstream.topics.writing import carry_out

MOST_TOPICS = 256


class SocketRequests:
    """Publishes for one caller, and begins and ends its subscriptions."""

    def __init__(self, topics: Topics, caller: Caller, subscriptions: Subscriptions) -> None:
        self._topics = topics
        self._caller = caller
        self._subscriptions = subscriptions

    async def carry_out(self, text: bytes | None) -> bytes:
        """Return the answer to a message: what was asked for, or why not."""
        request_id = NULL
        try:
            if text is None:
                raise BadMessage("unsupported_message", "messages are JSON in text frames")
            message = read_message(text)
            request_id = message.request_id
            return await self._obey(message)
        except BadMessage as error:
            return refusal(error.request_id, error.word, error.message)
        except MillstreamError as error:
            return refusal(request_id, error.code, error.message)

    async def _obey(self, message: Message) -> bytes:
        match message:
            case Publish():
                return await self._publish(message)
            case Subscribe():
                return self._subscribe(message)
            case Unsubscribe():
                return self._unsubscribe(message)
            case PingRequest():
                return answer("pong", message.request_id)

    async def _publish(self, message: Publish) -> bytes:
        watch = Stopwatch(self._topics.clock)
        await self._topics.turns.turn(message.topic)
        caller = self._asking_for("write", message.topic)
        if message.config is not None and "admin" not in caller.scopes:
            raise Forbidden("publishing with a config needs the admin scope")
        body = bodies.WriteBody(
            records=message.records,
            node=message.node,
            idempotency_key=message.idempotency_key,
            create=message.create,
            config=message.config,
            disable_backpressure=message.disable_backpressure,
        )
        self._subscriptions.held = message.topic  # its ack goes before its records
        done = await carry_out(body, message.topic, caller, self._topics, watch, shares=True)
        seqs = None if message.return_seqs is False else done.seqs()
        return answer("ack", message.request_id, seqs=seqs, **done.shown())

    def _subscribe(self, message: Subscribe) -> bytes:
        wishes = dict(message.topics or {})
        if message.topic is not None:
            own = bodies.WatchTopic(message.from_seq, message.tail)
            wishes.setdefault(message.topic, own)
        if not wishes:
            raise BadRequest("name a topic to subscribe to")
        query = _query(message)
        starts = {
            name: bodies.unsigned(wish.from_seq if wish else None, "from_seq", 0)
            for name, wish in wishes.items()
        }
        callers = {name: self._asking_for("read", name) for name in wishes}
        new = sum(name not in self._subscriptions for name in wishes)
        if len(self._subscriptions) + new > MOST_TOPICS:
            raise BadRequest(f"a socket subscribes to at most {MOST_TOPICS} topics")
        made, shown = [], {}
        for name, wish in wishes.items():
            if message.lenient and self._topics.directory.find_or_none(name, callers[name]) is None:
                continue
            stream = self._topics.directory.find(name, callers[name])
            state = current_state(stream, self._topics.clock.time_ns())
            start = state.last_seq if wish is not None and wish.tail else starts[name]
            shown[name] = {
                "from_seq": start,
                "head_seq": state.last_seq,
                "earliest_seq": state.first_seq,
            }
            made.append((stream, start, query, callers[name]))
        for subscription in made:
            self._subscriptions.add(*subscription)
        return answer("subscribed", message.request_id, topics=shown)

    def _unsubscribe(self, message: Unsubscribe) -> bytes:
        names = list(message.topics or ())
        if message.topic is not None and message.topic not in names:
            names.append(message.topic)
        if not names:
            raise BadRequest("name a topic to unsubscribe from")
        ended = [name for name in names if self._subscriptions.remove(name)]
        return answer("unsubscribed", message.request_id, topics=ended)

    def _asking_for(self, scope: str, topic: str) -> Caller:
        """Return the caller as judged for an operation; raises where it may not."""
        if self._caller.revoked:
            raise Unauthorized("the credential was revoked")
        caller = self._caller.asking_for(scope, topic)
        check_scope(caller, scope)
        check_name(topic, caller)
        return caller


def _query(message: Subscribe) -> Query:
    limit = bodies.unsigned(message.limit, "limit", 0, bodies.U32)
    budget = bodies.unsigned(message.max_batch_bytes, "max_batch_bytes", 0)
    return Query(
        limit=min(limit or MOST_RECORDS, MOST_RECORDS),
        max_bytes=min(budget or 1024 * 1024, MOST_BYTES),
        without_nodes=bodies.nodes(message.node),
        include_tags=bool(message.include_tags),
        include_meta=message.include_meta is not False,
        include_data=message.include_data is not False,
        filter=bodies.read_filter(message.filter),
    )
