"""A door for tests of the hub: it does what clients ask and keeps what it was told."""

from typing import Any

from millstream.kernel import _hub
from millstream.kernel._batch import Batch
from millstream.kernel._hub import Hub
from millstream.kernel._interest import Interest
from millstream.nats.phrases import PHRASES

QUIET = {
    "verbose": False,
    "pedantic": False,
    "echo": True,
    "headers": True,
    "no_responders": False,
}


opened: list[Hub] = []


class Recorder:
    """A handler that carries out SUB and UNSUB and keeps what it was told."""

    def __init__(self, **options: Any) -> None:
        self.hub = Hub(self, PHRASES, **{"slice_ns": 1 << 60, **options})
        self.interest = Interest()
        self.calls: list[tuple[object, ...]] = []
        self.output: dict[int, bytes] = {}
        self.verdicts: dict[bytes, int] = {}
        opened.append(self.hub)

    def client(self, **options: Any) -> int:
        cid = self.hub.attach_fed(self.interest)
        self.hub.configure(cid, **{**QUIET, **options})
        self.output[cid] = b""
        return cid

    def sent(self, cid: int) -> bytes:
        """Return and forget what the connection was sent."""
        data, self.output[cid] = self.output[cid], b""
        return data

    def on_connect(self, cid: int, options: bytes) -> None:
        self.calls.append(("connect", cid, options))

    def on_sub(self, cid: int, subject: bytes, queue: bytes, sid: bytes) -> None:
        self.calls.append(("sub", cid, subject, queue, sid))
        self.hub.subscribe(cid, subject, queue, sid)

    def on_unsub(self, cid: int, sid: bytes, max_msgs: int) -> None:
        self.calls.append(("unsub", cid, sid, max_msgs))
        self.hub.unsubscribe(cid, sid, max_msgs)

    def on_ping(self, cid: int) -> None:
        self.calls.append(("ping", cid))
        self.hub.write(cid, b"PONG\r\n")

    def on_info(self, cid: int, info: bytes) -> None:
        self.calls.append(("info", cid, info))

    def on_pong(self, cid: int) -> None:
        self.calls.append(("pong", cid))

    def on_error(self, cid: int, code: int) -> None:
        self.calls.append(("error", cid, code))
        self.hub.write(cid, b"-ERR\r\n")

    def on_closed(self, cid: int, reason: int) -> None:
        self.calls.append(("closed", cid, reason))

    def on_output(self, cid: int) -> None:
        self.output[cid] = self.output.get(cid, b"") + self.hub.take(cid)

    def may_publish(self, cid: int, subject: bytes) -> int:
        self.calls.append(("may_publish", cid, subject))
        return self.verdicts.get(subject, _hub.ALLOWED)

    def may_reply(self, cid: int, reply: bytes) -> int:
        self.calls.append(("may_reply", cid, reply))
        return self.verdicts.get(reply, _hub.ALLOWED)

    def may_schedule(self, cid: int, headers: bytes) -> bool:
        self.calls.append(("may_schedule", cid, headers))
        return b"bad" not in headers

    def on_delivered_reply(self, cid: int, reply: bytes) -> None:
        self.calls.append(("delivered_reply", cid, reply))


class Collector:
    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def deliver(self, batch: Batch) -> None:
        self.batches.append(batch)

    def messages(self) -> list[tuple[bytes, bytes, bytes, bytes, int]]:
        return [batch.message(i) for batch in self.batches for i in range(len(batch))]


def close_hubs() -> None:
    """Close what the test opened."""
    while opened:
        opened.pop().close()
