"""EventStream: a session's topics as server-sent events, read by pull and never buffered."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TYPE_CHECKING

from millstream.http.response import Push, StreamedResponse
from millstream.topics import sse
from millstream.topics.audience.follower import Follower
from millstream.topics.audience.wakeup import Wakeup
from millstream.topics.context import Topics
from millstream.topics.watch.event_renderer import EventRenderer
from millstream.topics.watch.session import WatchSession

if TYPE_CHECKING:
    from millstream.streams.stream import Stream

DEFAULT_HEARTBEAT_MS = 15_000
LONGEST_HEARTBEAT_MS = 60_000


def heartbeat(topics: Topics, asked_ms: int | None) -> int:
    """Return the heartbeat asked for within its range."""
    wish = DEFAULT_HEARTBEAT_MS if asked_ms is None else asked_ms
    return min(max(wish, topics.shortest_heartbeat_ms), LONGEST_HEARTBEAT_MS)


def respond(topics: Topics, session: WatchSession) -> StreamedResponse:
    """Return the answer that sends a session's events; refuses it above the cap."""
    events = EventStream(topics, session, topics.live.take(session.caller.key))
    return StreamedResponse(events, attach=events.attach)


class EventStream(AsyncIterator[bytes]):
    """One connection of a session; counted from the first chunk until it is closed."""

    def __init__(self, topics: Topics, session: WatchSession, leave: Callable[[], None]) -> None:
        self._topics = topics
        self._leave = leave
        self._session = session
        self._renderer = EventRenderer(session)
        self.push: Push | None = None  # to the client, past who waits
        self._wakeup = Wakeup(self._last_sent, self._stir)
        shared = session.query, session.caller, self._renderer, self
        self._followers = {
            name: Follower(name, session.positions[name], *shared)
            for name in sorted(session.positions, key=str.encode)
        }
        self._paused: set[str] = set()  # topics that the client knows to be paused
        self._chunks = self._generate()
        self._is_counted = True
        self._undo_stop = topics.stop_signal.on_wake(self._wakeup.ring)
        session.use.open_streams += 1

    def attach(self, push: Push) -> None:
        """Send by ``push`` what comes while somebody waits for the next piece."""
        if self._session.query.is_strong:
            return  # what a commit brings is not for it yet: it looks for itself after the sync
        self._stir()
        self.push = push

    @property
    def is_waiting(self) -> bool:
        """Say whether somebody waits for the next piece who was not woken yet."""
        return self._wakeup.is_waiting

    def ring(self) -> None:
        """Look at the topics again."""
        self._wakeup.ring()

    async def __anext__(self) -> bytes:
        """Return the next piece of the stream."""
        return await anext(self._chunks)

    async def aclose(self) -> None:
        """Give the slot back; harmless when done twice."""
        if self._is_counted:
            self._is_counted = False
            self._leave()
            self._session.use.open_streams -= 1
            self._session.use.idle_since_ms = self._topics.now_ms()
            self._undo_stop()
            for follower in self._followers.values():
                follower.leave()
        await self._chunks.aclose()

    async def _generate(self) -> AsyncGenerator[bytes, None]:
        topics, session, wakeup = self._topics, self._session, self._wakeup
        renderer, heartbeat = self._renderer, session.heartbeat_ms / 1000
        yield sse.RETRY
        while len(session.gone) < len(session.positions):
            wakeup.clear()  # whatever changes from here on rings it again
            barred = sse.why_barred(session.caller, session.positions.keys() - session.gone)
            if barred:
                yield renderer.event(b"error", barred)
                return
            for name, follower in self._followers.items():
                stream = self._stream(name)
                if stream is None:
                    if name not in session.gone:
                        session.gone.add(name)
                        follower.leave()
                        yield renderer.deleted(name)
                    continue
                audience = topics.audiences.follow(follower, stream)
                if topics.is_deferred(stream):
                    audience.tell_later()  # which is when the load has gone
                    if name not in self._paused:
                        self._paused.add(name)
                        yield renderer.throttled(name)
                    continue
                self._paused.discard(name)
                if topics.routers.feed(stream):
                    await topics.routers.catch_up(stream)
                is_all = False
                while not is_all and not session.caller.revoked:
                    topics.priorities.touch(stream)
                    chunk, is_all = follower.look()
                    if chunk:
                        yield chunk  # one send for all that this look has found
                    if not is_all:
                        await asyncio.sleep(0)  # there is much to read: others have their turn
            if topics.stop_signal.is_set:
                yield renderer.event(b"error", sse.SHUTTING_DOWN)
                return
            is_over = len(session.gone) == len(session.positions)
            if not is_over and not await wakeup.wait(heartbeat):
                yield sse.heartbeat(topics.now_ms())

    def _stream(self, name: str) -> "Stream | None":
        if name in self._session.gone:
            return None
        return self._topics.directory.find_or_none(name, self._session.caller)

    def _stir(self) -> None:
        """Stand by itself in each topic; who reads several never stands with others."""
        if not self._renderer.is_personal:
            for follower in self._followers.values():
                follower.step_out()

    def _last_sent(self) -> float:
        return max(position.sent_at for position in self._session.positions.values())
