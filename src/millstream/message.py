"""The values that everyone passes: a record at rest and a record about to be one."""

from typing import Protocol

import msgspec

from millstream.kernel._batch import Batch


class NewRecord(msgspec.Struct, frozen=True):
    """A record that has no sequence yet; ``headers`` is a raw ``NATS/1.0`` block or empty."""

    subject: bytes
    payload: bytes
    headers: bytes = b""
    tag: bytes = b""
    node: bytes = b""
    meta: bytes = b""


class Record(msgspec.Struct, frozen=True):
    """A record as stored. Empty ``tag``, ``node`` and ``meta`` mean absent."""

    seq: int
    ts_ns: int
    subject: bytes
    payload: bytes
    headers: bytes = b""
    tag: bytes = b""
    node: bytes = b""
    meta: bytes = b""


class Sink(Protocol):
    """Anything that receives messages: a stream, an API endpoint, a route.

    The kernel calls ``deliver`` once per read chunk with everything that matched,
    in publish order; a sink never blocks in it and never sees a message twice.
    """

    def deliver(self, batch: Batch) -> None:
        """Take ownership of the batch."""
        ...
