"""StreamImport: messages of one account that another one hears too, under its own names."""

from itertools import combinations
from typing import TYPE_CHECKING

from millstream.accounts.account import Import
from millstream.accounts.rights import text_of
from millstream.kernel._batch import Batch
from millstream.kernel._hub import Hub
from millstream.kernel._interest import covers
from millstream.subjects.subject import overlap

if TYPE_CHECKING:
    from millstream.nats.accounts.accounts import Space
    from millstream.nats.tracing.tracer import TracedMessage

MOST_PARTS = 64  # above, everything is taken: to look for overlaps would cost more


class StreamImport:
    """A sink in the exporting account that publishes again in the importing one.

    It is there only while somebody in the importing account listens, and for what they listen to,
    so that a publisher in the exporting account is told truly whether anybody does: a consumer
    that delivers to an inbox waits until its client listens there.
    """

    def __init__(
        self, hub: Hub, owner: "Space", importer: "Space", item: Import, *, always: bool
    ) -> None:
        self._hub = hub
        self._owner = owner
        self._importer = importer
        self._subject = item.subject
        self._local = item.local
        self._rename = item.inward()
        self._always = always
        self._allow_trace = item.allow_trace
        self._listeners: dict[int, dict[bytes, str]] = {}  # cid → sid → subject
        self._handles: dict[str, int] = {}  # what is taken → sink
        self._settle()

    def wanted(self, cid: int, sid: bytes, subject: bytes) -> None:
        """Note a subscription of the importing account, if it could hear us."""
        if overlap(text_of(subject), self._local):
            self._listeners.setdefault(cid, {})[sid] = text_of(subject)
            self._settle()

    def unwanted(self, cid: int, sid: bytes) -> None:
        """Note that a subscription is gone."""
        held = self._listeners.get(cid, {})
        if held.pop(sid, None) is None:
            return
        if not held:
            del self._listeners[cid]
        self._settle()

    def lost(self, cid: int) -> None:
        """Note that a connection is gone with all its subscriptions."""
        if self._listeners.pop(cid, None) is not None:
            self._settle()

    def close(self) -> None:
        """Let nothing through any more."""
        self._always = False
        self._listeners.clear()
        self._settle()

    def _settle(self) -> None:
        wanted = {self._subject} if self._always else self._parts()
        for part in [part for part in self._handles if part not in wanted]:
            self._owner.interest.remove_sink(self._handles.pop(part))
        for part in wanted - self._handles.keys():
            self._handles[part] = self._owner.interest.add_sink(_raw(part), self, routed=True)

    def _parts(self) -> set[str]:
        """Return what to take: each message once, so patterns that overlap make it everything."""
        heard = {subject for held in self._listeners.values() for subject in held.values()}
        if self._rename is not None or len(heard) > MOST_PARTS:
            return {self._subject} if heard else set()
        parts: set[str] = set()
        for subject in sorted(heard):
            part = subject if _covers(self._subject, subject) else self._subject
            if any(_covers(other, part) for other in parts):
                continue
            parts = {other for other in parts if not _covers(part, other)} | {part}
        if any(overlap(a, b) for a, b in combinations(parts, 2)):
            return {self._subject}
        return parts

    def deliver(self, batch: Batch) -> None:
        """Publish each message again under the importing account's name for it."""
        for at in range(len(batch)):
            subject, reply, headers, payload, origin = batch.message(at)
            self._hub.publish(
                self._importer.interest,
                self._renamed(subject),
                reply,
                headers,
                payload,
                batch.extras(at)[0],  # what a record is called goes along
                origin=origin,
            )

    def passes_on(
        self, message: "TracedMessage", subject: bytes, reply: bytes, headers: bytes
    ) -> bool:
        """Publish a traced message in the importing account, which may not want to be seen."""
        to = self._renamed(subject)
        if message.trace is not None:
            message.trace.exported(self._importer.name, text_of(to))
            if not self._allow_trace:
                return not message.really or message.unfollowed().route(
                    self._importer, to, reply, headers
                )
        return message.route(self._importer, to, reply, headers)

    def _renamed(self, subject: bytes) -> bytes:
        if self._rename is None:
            return subject
        return self._rename.apply(text_of(subject)).encode("utf-8", "surrogateescape")


def _covers(wide: str, narrow: str) -> bool:
    return covers(_raw(wide), _raw(narrow))


def _raw(pattern: str) -> bytes:
    return pattern.encode("utf-8", "surrogateescape")
