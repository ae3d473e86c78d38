"""StreamImport: messages of one account that another one hears too, under its own names."""

from typing import TYPE_CHECKING

from millstream.accounts.account import Import
from millstream.accounts.rights import text_of
from millstream.kernel._batch import Batch
from millstream.kernel._hub import Hub
from millstream.subjects.subject import overlap

if TYPE_CHECKING:
    from millstream.nats.accounts.accounts import Space
    from millstream.nats.tracing.tracer import TracedMessage


class StreamImport:
    """A sink in the exporting account that publishes again in the importing one.

    It is there only while somebody in the importing account listens, so that a publisher in the
    exporting account is told truly whether anybody does.
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
        self._listeners: dict[int, set[bytes]] = {}  # cid → sids
        self._handle: int | None = None
        self._settle()

    def wanted(self, cid: int, sid: bytes, subject: bytes) -> None:
        """Note a subscription of the importing account, if it could hear us."""
        if overlap(text_of(subject), self._local):
            self._listeners.setdefault(cid, set()).add(sid)
            self._settle()

    def unwanted(self, cid: int, sid: bytes) -> None:
        """Note that a subscription is gone."""
        held = self._listeners.get(cid, set())
        held.discard(sid)
        if not held:
            self.lost(cid)

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
        wanted = self._always or bool(self._listeners)
        if wanted and self._handle is None:
            self._handle = self._owner.interest.add_sink(self._subject.encode(), self, routed=True)
        elif not wanted and self._handle is not None:
            self._owner.interest.remove_sink(self._handle)
            self._handle = None

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
