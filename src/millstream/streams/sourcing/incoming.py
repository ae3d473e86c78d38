"""Incoming: records of another stream on their way into a stream, before it has taken them."""

import msgspec

from millstream.kernel._batch import Batch
from millstream.streams.config import extras
from millstream.streams.writing import preconditions

_DEMANDS = (
    preconditions.MSG_ID,
    preconditions.TTL,
    preconditions.ROLLUP,
)


class Incoming(msgspec.Struct):
    """Records of another stream on their way in, whole or absent."""

    batch: Batch = msgspec.field(default_factory=Batch)
    demands: dict[int, dict[bytes, bytes]] = msgspec.field(default_factory=dict)  # by position
    seqs: list[int] | None = None  # where they must be stored; a mirror's are its origin's
    times_ns: list[int] = msgspec.field(default_factory=list)

    def demand(self, headers: bytes) -> None:
        """Note what the record that is about to be added asks of a stream."""
        if b"\nNats-" not in headers:
            return
        values = extras.first_values(headers)
        found = {key: values[key] for key in _DEMANDS if key in values}
        if found:
            self.demands[len(self.batch)] = found
