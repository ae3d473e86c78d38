"""Event streams: a session's topics as server-sent events, read by pull and never buffered."""

import asyncio
import base64
import binascii
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from millstream.errors import NotHere
from millstream.http.request import Caller
from millstream.http.response import Parcel, Push, StreamedResponse
from millstream.store.log.log import DAMAGE
from millstream.streams.reading.cold_reads import look_again
from millstream.topics.audience.alarm import Alarm
from millstream.topics.audience.pulse import Pulse
from millstream.topics.audience.seat import News, Seat, Variant
from millstream.topics.context import Topics
from millstream.topics.page.page import Page, Query, read_page
from millstream.topics.sse import RETRY, SHUTTING_DOWN, why_barred

if TYPE_CHECKING:
    from millstream.streams.stream import Stream

DEFAULT_HEARTBEAT_MS = 15_000
LONGEST_HEARTBEAT_MS = 60_000
ANEW = 2**64 - 1  # a position above any head, which is how a topic made anew shows itself

_encode = msgspec.json.encode
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class Use(msgspec.Struct):
    """How many connections a session has, and since when it has none."""

    idle_since_ms: int = 0
    open_streams: int = 0


class WatchSession(msgspec.Struct):
    """Where a watcher stands in each of its topics, and what it wants to see."""

    cursors: dict[str, int]
    query: Query
    heartbeat_ms: int
    caller: Caller
    use: Use = msgspec.field(default_factory=Use)
    is_private: bool = False  # only the stream that it was made for reads it
    gone: set[str] = msgspec.field(default_factory=set)  # topics whose end was reported
    incarnations: dict[str, int] = msgspec.field(default_factory=dict)  # whose the cursors are

    def continued(self, caller: Caller) -> "WatchSession":
        """Return the session as the next connection goes on with it.

        The one before may not know yet that its client is gone: what it still sends must not count
        as seen.
        """
        return replace(
            self,
            cursors=dict(self.cursors),
            caller=caller,
            gone=set(self.gone),
            incarnations=dict(self.incarnations),
        )

    def event_id(self) -> bytes:
        """Return all cursors as one opaque id."""
        return _event_id(self.cursors)

    def resume(self, last_event_id: bytes | None) -> None:
        """Step back to what a client says it has seen; nothing is ever skipped by it."""
        for topic, seq in _cursors(last_event_id).items():
            if topic in self.cursors:
                self.cursors[topic] = min(self.cursors[topic], seq)

    def meet(self, stream: "Stream") -> None:
        """Read a topic that was deleted and made anew from its beginning, and have that told."""
        name, incarnation = stream.name, stream.incarnation
        if self.incarnations.setdefault(name, incarnation) != incarnation:
            self.incarnations[name] = incarnation
            self.cursors[name] = anew(self.cursors[name])


def anew(cursor: int) -> int:
    """Return where one who stood there stands in a topic made anew: it has nothing of it yet."""
    return ANEW if cursor else 0


def heartbeat(topics: Topics, asked_ms: int | None) -> int:
    """Return the heartbeat asked for within its range."""
    wish = DEFAULT_HEARTBEAT_MS if asked_ms is None else asked_ms
    return min(max(wish, topics.shortest_heartbeat_ms), LONGEST_HEARTBEAT_MS)


def respond(topics: Topics, session: WatchSession) -> StreamedResponse:
    """Return the answer that sends a session's events; refuses it above the cap."""
    events = EventStream(topics, session, topics.live.take(session.caller.key))
    return StreamedResponse(events, attach=events.attach)


class Heard(msgspec.Struct, frozen=True):
    """A topic that a stream listens to."""

    stream: "Stream"
    pulse: Pulse
    variant: Variant
    seat: Seat
    undo: Callable[[], None]


class EventStream(AsyncIterator[bytes]):
    """One connection of a session; counted from the first chunk until it is closed."""

    def __init__(self, topics: Topics, session: WatchSession, leave: Callable[[], None]) -> None:
        self._topics = topics
        self._leave = leave
        self._session = session
        self._alarm = Alarm()
        self._heard: dict[str, Heard] = {}
        self._push: Push | None = None
        self._first_reads = set(session.cursors)
        self._announced: set[str] = set()
        self._deferred: set[str] = set()  # topics that the client knows to be paused
        self._chunks = self._generate()
        self._counted = True
        self._undo_stop = topics.on_stop(self._alarm.ring)
        session.use.open_streams += 1

    def attach(self, push: Push) -> None:
        """Send by ``push`` what comes while somebody waits for the next piece."""
        if self._session.query.is_strong:
            return  # what a commit brings is not for it yet: it looks for itself after the sync
        self._push = push
        for heard in self._heard.values():
            heard.seat.push = push

    async def __anext__(self) -> bytes:
        """Return the next piece of the stream."""
        return await anext(self._chunks)

    async def aclose(self) -> None:
        """Give the slot back; harmless when done twice."""
        if self._counted:
            self._counted = False
            self._leave()
            self._session.use.open_streams -= 1
            self._session.use.idle_since_ms = self._topics.now_ms()
            self._undo_stop()
            for name in list(self._heard):
                self._ignore(name)
        await self._chunks.aclose()

    async def _generate(self) -> AsyncGenerator[bytes, None]:
        topics, session, alarm = self._topics, self._session, self._alarm
        names = sorted(session.cursors, key=str.encode)
        heartbeat = session.heartbeat_ms / 1000
        yield RETRY
        while len(session.gone) < len(session.cursors):
            alarm.clear()  # whatever changes from here on rings it again
            barred = why_barred(session.caller, session.cursors.keys() - session.gone)
            if barred:
                yield self._frame(b"error", barred)
                return
            for name in names:
                stream = self._stream(name)
                if stream is None:
                    if name not in session.gone:
                        session.gone.add(name)
                        self._ignore(name)
                        yield self._frame(b"topic-deleted", _deleted(name))
                    continue
                heard = self._listen(stream)
                if topics.is_deferred(stream):
                    heard.pulse.later()  # which is when the load has gone
                    if name not in self._deferred:
                        self._deferred.add(name)
                        yield self._frame(b"error", _throttled(name))
                    continue
                self._deferred.discard(name)
                if topics.routers.feed(stream):
                    await topics.routers.catch_up(stream)
                caught_up = False
                while not caught_up and not session.caller.revoked:
                    chunk, caught_up = self._look(heard)
                    if chunk:
                        yield chunk  # one send for all that this look has found
                    if not caught_up:
                        await asyncio.sleep(0)  # there is much to read: others have their turn
            if topics.stopping:
                yield self._frame(b"error", SHUTTING_DOWN)
                return
            if self._heard and not await alarm.wait(heartbeat):
                yield b": hb %d\n\n" % topics.now_ms()

    def _stream(self, name: str) -> "Stream | None":
        if name in self._session.gone:
            return None
        return self._topics.find_or_none(name, self._session.caller)

    def _listen(self, stream: "Stream") -> Heard:
        """Listen to the topic's pulse; a topic made anew has another one."""
        heard = self._heard.get(stream.name)
        if heard is not None and heard.stream is stream:
            return heard
        self._ignore(stream.name)
        self._session.meet(stream)
        pulse = self._topics.pulses.of(stream)
        session, variant = self._session, pulse.variant(self._session.query)
        seat = Seat(
            *(stream.name, session, session.cursors, self._announced, self._alarm, variant),
            *(partial(self._news, stream, variant), self._parcel, self._push, session.is_private),
        )
        undo = pulse.seat(seat)
        if session.query.is_strong:
            undo = partial(_undo_both, undo, stream.log.watch_synced(self._alarm.ring))
        heard = Heard(stream, pulse, variant, seat, undo)
        self._heard[stream.name] = heard
        return heard

    def _ignore(self, name: str) -> None:
        heard = self._heard.pop(name, None)
        if heard is not None:
            heard.undo()

    def _parcel(self, news: News) -> Parcel:
        """Return news as this session sends them: an event's id names all its topics."""
        if news.parcel is not None and len(self._session.cursors) == 1:
            return news.parcel
        return Parcel(_news_frames(self._session.event_id(), news.records, news.caught_up))

    def _news(self, stream: "Stream", variant: Variant, before: int) -> News | None:
        """Return what all who are caught up there get to see; None when there is more to it."""
        known: News | None = variant.chunks.get(before)
        if known is not None:
            return known
        try:
            page = self._page(stream, before)
        except NotHere:
            return None
        if page.tombstone is not None or not page.caught_up:
            return None
        known = _news_of(stream.name, before, page)
        variant.keep(before, known)
        return known

    def _look(self, heard: Heard) -> tuple[bytes, bool]:
        """Return what there is to send of a topic, and whether that is all of it."""
        topics, session, name = self._topics, self._session, heard.stream.name
        topics.touch(heard.stream)
        before = session.cursors[name]
        shares = heard.pulse.may_share and not session.query.is_strong  # which a sync changes too
        if shares and name in self._announced:
            news = self._news(heard.stream, heard.variant, before)
            if news is not None:
                session.cursors[name] = news.cursor
                return (self._parcel(news).plain if news.parcel else b""), True
        try:
            page = self._page(heard.stream, before)
        except NotHere as missing:
            missing.wait(partial(look_again, self._alarm.ring))
            return b"", True
        return self._render(name, before, page), page.caught_up

    def _page(self, stream: "Stream", before: int) -> Page:
        topics, query = self._topics, replace(self._session.query, from_seq=before)
        return read_page(stream, query, topics.clock.time_ns(), topics.last_page)

    def _render(self, name: str, before: int, page: Page) -> bytes:
        """Return the events of a page, and move the cursor past them."""
        session, announced, frames = self._session, self._announced, []
        is_first = name in self._first_reads
        self._first_reads.discard(name)
        if page.tombstone is not None:
            announced.discard(name)
            before = session.cursors[name] = page.after_loss
            frames.append(self._frame(b"tombstone", _tombstone(name, page, is_first)))
        if page.count:
            announced.discard(name)
            session.cursors[name] = page.next_from_seq
            frames.append(self._frame(b"record", _records(name, before, page)))
        session.cursors[name] = page.next_from_seq
        if page.caught_up and name not in announced:
            announced.add(name)
            frames.append(self._frame(b"caught-up", _caught_up(name, page)))
        return b"".join(frames)

    def _frame(self, event: bytes, data: bytes) -> bytes:
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (self._session.event_id(), event, data)


def _undo_both(one: Callable[[], None], other: Callable[[], None]) -> None:
    one()
    other()


def _news_of(name: str, before: int, page: Page) -> News:
    if not page.count:
        return News(page.next_from_seq, None)
    records, caught_up = _records(name, before, page), _caught_up(name, page)
    alone = _event_id({name: page.next_from_seq})
    parcel = Parcel(_news_frames(alone, records, caught_up))
    return News(page.next_from_seq, parcel, records, caught_up)


def _news_frames(event_id: bytes, records: bytes, caught_up: bytes) -> bytes:
    return b"id: %b\nevent: record\ndata: %b\n\nid: %b\nevent: caught-up\ndata: %b\n\n" % (
        event_id,
        records,
        event_id,
        caught_up,
    )


def _event_id(cursors: dict[str, int]) -> bytes:
    text = binascii.b2a_base64(_encode(cursors), newline=False)
    return text.rstrip(b"=").translate(_URL_SAFE)


def _throttled(name: str) -> bytes:
    """Return what a watcher hears of a topic that is not pushed for now; it can still be read."""
    text = f"{name} is paused while the server is overloaded; its records can be read by diff"
    return _encode({"code": "throttled", "message": text, "topic": name, "retry_after_ms": 1000})


def _deleted(name: str) -> bytes:
    return _encode({"topic": name, "head_seq": 0, "reason": "deleted"})


def _caught_up(name: str, page: Page) -> bytes:
    return _encode({"topic": name, "head_seq": page.head_seq})


def _records(name: str, from_seq: int, page: Page) -> bytes:
    return b'{"topic":%b,"from_seq":%d,"head_seq":%d,"records":[%b],"to_seq":%d}' % (
        _encode(name),
        from_seq,
        page.head_seq,
        page.records,
        page.next_from_seq,
    )


def _tombstone(name: str, page: Page, is_first: bool) -> bytes:
    lost = page.tombstone
    assert lost is not None
    is_aged = lost.reason not in DAMAGE  # what the disk lost was not too old for anybody
    return _encode(
        {
            "topic": name,
            "reason": "from_seq_too_old" if is_first and is_aged else lost.reason,
            "gap_from": lost.gap_from,
            "gap_to": lost.gap_to,
            "earliest_seq": lost.earliest_seq,
            "head_seq": lost.head_seq,
            **lost.doubt,
        }
    )


def _cursors(last_event_id: bytes | None) -> dict[str, int]:
    """Return the cursors inside an event id; what is no such id says nothing."""
    if not last_event_id:
        return {}
    try:
        raw = base64.urlsafe_b64decode(last_event_id + b"=" * (-len(last_event_id) % 4))
        cursors = msgspec.json.decode(raw, type=dict[str, int])
    except (binascii.Error, ValueError, msgspec.DecodeError):
        return {}
    return {topic: seq for topic, seq in cursors.items() if seq >= 0}
