"""PubAcks: what publishers hear about their messages, once the commit is known."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from millstream.errors import MillstreamError
from millstream.streams.writing.run import Run

if TYPE_CHECKING:
    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest


class PubAcks:
    """Answers in the name of one stream; silent where its configuration says ``no_ack``."""

    def __init__(
        self, stream: str, hub: "Hub | None", interest: "Interest | None", domain: str = ""
    ) -> None:
        self.is_silent = False
        self._stream = stream
        self._hub = hub
        self._interest = interest
        named = b',"domain":%s' % msgspec.json.encode(domain) if domain else b""
        self._prefix = b'{"stream":%s%s,"seq":' % (msgspec.json.encode(stream), named)

    def settle(self, run: Run, error: MillstreamError | None) -> None:
        """Tell everybody who waits for a run what became of it."""
        if run.on_end is not None:
            run.on_end(run, error)
        elif run.future is not None:
            _resolve(run, error)
        elif error is not None:
            for at in range(run.start, run.start + run.count):
                self.refuse(run.batch.message(at)[1], error)
        elif self._hub is not None and self._interest is not None and not self.is_silent:
            self._hub.publish_acks(
                self._interest, run.batch, run.start, run.count, run.first_seq,
                self._prefix, run.ack_suffix,
            )  # fmt: skip
        for reply, body in run.duplicates:
            self.send(reply, body)
        if self._hub is not None:
            self._hub.flush()

    def duplicate(self, reply: bytes, seq: int, inflight: Iterable[Run]) -> None:
        """Name the record that was stored before, once that is committed."""
        body = b'%s%d,"duplicate": true}' % (self._prefix, seq)
        for run in inflight:
            if run.first_seq <= seq <= run.last_seq:
                run.duplicates.append((reply, body))  # never ack what is not committed
                return
        self.send(reply, body)

    def refuse(self, reply: bytes, error: MillstreamError) -> None:
        """Say why a message was not stored."""
        if not reply:
            return
        body = {
            "error": {
                "code": error.status,
                "err_code": error.err_code,
                "description": error.message,
            },
            "stream": self._stream,
            "seq": 0,
        }
        self.send(reply, msgspec.json.encode(body))

    def send(self, reply: bytes, body: bytes) -> None:
        """Send an answer, where one is wanted."""
        if reply and self._hub is not None and self._interest is not None and not self.is_silent:
            self._hub.publish(self._interest, reply, b"", b"", body)


def _resolve(run: Run, error: MillstreamError | None) -> None:
    assert run.future is not None
    if run.future.done():
        return
    if error is None:
        run.future.set_result((run.first_seq, run.last_seq))
    else:
        run.future.set_exception(error)
