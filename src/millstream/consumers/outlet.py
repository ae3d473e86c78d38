"""Outlet: the way out of one consumer, for records, statuses and advisories."""

import secrets
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.clock import Clock
from millstream.streams.config.times import rfc3339
from millstream.wire.headers import encode_headers, with_extras

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.consumers.reading.cursor import CursorPage
    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest

Fields = tuple[tuple[bytes, bytes], ...]
Routes = list[bytes]  # where each record of a page goes
FOREIGN = b"_R_."  # where requests of other accounts are answered
_EMPTY_BLOCK = b"NATS/1.0\r\n\r\n"


def msg_size_growth(headers: int, payload: int) -> int:
    """Return by how much a record grows when its payload's size goes in its place, in bytes."""
    told = len(b"Nats-Msg-Size: %d\r\n" % payload)
    return told - payload + (0 if headers else len(_EMPTY_BLOCK))


class Outlet:
    """Publishes under the consumer's account, or holds everything back for a while."""

    def __init__(
        self,
        hub: "Hub",
        interest: "Interest",
        clock: Clock,
        is_awaited: "Callable[[bytes], bool] | None" = None,
    ) -> None:
        """Publish to those of ``interest``; ``is_awaited`` says it of other accounts' replies."""
        self._hub = hub
        self._interest = interest
        self._clock = clock
        self._held: list[Callable[[], object]] | None = None
        self._is_awaited = is_awaited

    @property
    def is_holding(self) -> bool:
        """Whether what is sent waits for ``release``."""
        return self._held is not None

    def hold(self) -> None:
        """Keep what is sent from now on, in order."""
        self._held = []

    def release(self) -> None:
        """Send what was held back, and everything else at once again."""
        held, self._held = self._held or (), None
        for send in held:
            send()

    def is_bound(self, subject: bytes, group: bytes) -> bool:
        """Whether a push consumer is served here: queue groups count only where one is named."""
        if group:
            return group in self._interest.match(subject)[1]
        return self._interest.count_interest(subject)[0] > 0

    def is_heard(self, subject: bytes) -> bool:
        """Whether anybody listens."""
        if self._is_awaited is not None and subject.startswith(FOREIGN):
            return self._is_awaited(subject)
        return self._interest.has_interest(subject)

    def room(self, subject: bytes) -> int:
        """Return how many bytes the listeners still take without being closed for slowness."""
        return self._hub.room(self._interest, subject)

    def heard_for(self, subject: bytes) -> int:
        """Return how many messages are heard before all who listen have as many as they want."""
        return self._hub.heard_for(self._interest, subject)

    def flush(self) -> None:
        """Send what was published."""
        self._hub.flush()

    def reply(self, subject: bytes) -> None:
        """Send an empty message."""
        if self._held is not None:
            self._held.append(partial(self.reply, subject))
            return
        self._hub.publish(self._interest, subject, b"", b"", b"")

    def status(self, subject: bytes, line: str, fields: Fields = (), reply: bytes = b"") -> None:
        """Send a status: headers alone, with an inline code."""
        if self._held is not None:
            self._held.append(partial(self.status, subject, line, fields, reply))
        elif subject:
            headers = encode_headers(fields, line.encode())
            self._hub.publish(self._interest, subject, reply, headers, b"")

    def records(self, routes: Routes, page: "CursorPage", replies: list[bytes]) -> None:
        """Send records as they are stored, each to its route, in the order of the page."""
        if self._held is not None:
            self._held.append(partial(self.records, routes, page, replies))
            return
        self._hub.publish_frames(self._interest, routes, page.frames, page.start, replies)

    def marked_records(
        self, routes: Routes, page: "CursorPage", replies: list[bytes], first: Fields, each: Fields
    ) -> None:
        """Send records with header fields added: ``first`` to the first, ``each`` to all."""
        if self._held is not None:
            self._held.append(partial(self.marked_records, routes, page, replies, first, each))
            return
        for at, route in enumerate(routes):
            fields = (*first, *each) if at == 0 else each
            self._send_one(route, page, at, replies[at], fields, whole=True)

    def headers_of_records(
        self, routes: Routes, page: "CursorPage", replies: list[bytes], first: Fields, each: Fields
    ) -> None:
        """Send records without payload; its size is told in a header."""
        if self._held is not None:
            self._held.append(partial(self.headers_of_records, routes, page, replies, first, each))
            return
        for at, route in enumerate(routes):
            fields = (*first, *each) if at == 0 else each
            self._send_one(route, page, at, replies[at], fields, whole=False)

    def _send_one(
        self,
        route: bytes,
        page: "CursorPage",
        at: int,
        reply: bytes,
        fields: Fields,
        *,
        whole: bool,
    ) -> None:
        _, _, subject, payload, headers, tag, node, meta = page.frames.record(page.start + at)
        if not whole:
            fields = ((b"Nats-Msg-Size", b"%d" % len(payload)), *fields)
        block = headers or _EMPTY_BLOCK
        if tag or node or meta:
            block = with_extras(headers, tag, node, meta)
        if fields:
            block = block[:-2] + encode_headers(fields)[len(_EMPTY_BLOCK) - 2 :]
        elif block == _EMPTY_BLOCK:
            block = b""
        body = payload if whole else b""
        self._hub.publish(self._interest, route, reply, block, body, subject)

    def event(self, subject: str, type_name: str, /, **fields: Any) -> None:
        """Publish an advisory or a metric, when somebody listens."""
        if not self.is_heard(subject.encode()):
            return
        body = {
            "type": f"io.nats.jetstream.{type_name}",
            "id": secrets.token_urlsafe(16)[:22],
            "timestamp": rfc3339(self._clock.time_ns()),
            **fields,
        }
        self._hub.publish(self._interest, subject.encode(), b"", b"", msgspec.json.encode(body))
