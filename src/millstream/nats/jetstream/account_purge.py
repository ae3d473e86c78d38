"""AccountPurge: the system account's request to delete all streams of an account."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from millstream.errors import StreamNotFound
from millstream.kernel._batch import Batch
from millstream.nats.jetstream.endpoint import PREFIX, JetStream

if TYPE_CHECKING:
    from millstream.kernel._interest import Interest

_SUBJECT = PREFIX + b"ACCOUNT.PURGE."
_ANSWER = msgspec.json.encode(
    {"type": "io.nats.jetstream.api.v1.account_purge_response", "initiated": True}
)


class AccountPurge:
    """A sink of the system account; ``find`` is the API of an account, None where there is none."""

    def __init__(
        self, first: JetStream, system: "Interest", find: Callable[[str], JetStream | None]
    ) -> None:
        self._first = first
        self._system = system
        self._find = find
        self._handle = system.add_sink(_SUBJECT + b"*", self)

    def deliver(self, batch: Batch) -> None:
        """Carry out each request; it is answered once nothing of the account is left."""
        for at in range(len(batch)):
            subject, reply, _, _, _ = batch.message(at)
            account = subject[len(_SUBJECT) :].decode("utf-8", "replace")
            self._first.spawn(self._purge(account, reply))

    async def _purge(self, account: str, reply: bytes) -> None:
        js = self._find(account)
        for stream in js.catalog.streams(account) if js is not None else []:
            assert js is not None
            with suppress(StreamNotFound):  # somebody else was faster
                await js.catalog.delete(stream.name, account)
                js.advisories.tell_stream("DELETED", "delete", stream.name)
        if reply:
            self._first.hub.publish(self._system, reply, b"", b"", _ANSWER)
        self._first.hub.flush()

    def close(self) -> None:
        """Take no more requests."""
        self._system.remove_sink(self._handle)
