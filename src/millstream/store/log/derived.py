"""Derived records: copies that a log holds of another log's records, without frames in the WAL.

One DERIVE frame names what was copied where. While it is in the WAL, the copies can be made again
from the source, under the same sequences; by the time it goes, a snapshot vouches for the segment
files that hold them. Copying is decided by this page alone, so that a replay makes the very bytes
that the first run made.

Body of a DERIVE frame (MessagePack arrays):

    [source log, ts_ns, source name, [part, …]]
    part: [router, passed, hops, target log, base, lost, [[first, last], …], subject, bits, stamp]
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from millstream.kernel._batch import Batch

DERIVE = 30
SOURCE_TRIM = "source_trim"

WITHOUT_NODE, WITHOUT_TAG = 1, 2
MOST_META_KEYS = 64

MARK = "_topics_router"
ORIGINAL = "_topics_original_meta"

Fields = tuple[int, int, bytes, bytes, bytes, bytes, bytes, bytes]  # of message.Record, in order


class DerivedPart(msgspec.Struct, array_like=True, frozen=True):
    """What one router did in one step.

    ``target`` 0 means that nothing can or need be made again: the target is gone with the process.
    """

    router: int
    passed: int  # the router is done with the source's sequences up to here
    hops: int  # how often the copies were copied
    target: int
    base: int  # sequence of the first copy
    lost: int  # sequences before it that stand for records which the source lost first
    ranges: list[tuple[int, int]]  # the source's sequences that were copied, in order
    subject: str  # of copies whose original has the source's name for a subject
    bits: int
    stamp: str  # name of a router whose copies say where they come from, else empty

    @property
    def count(self) -> int:
        """Return how many copies there are."""
        return sum(last - first + 1 for first, last in self.ranges)

    @property
    def last(self) -> int:
        """Return the target's newest sequence after this step."""
        return self.base + self.count - 1


class Derivation(msgspec.Struct, array_like=True, frozen=True):
    """Body of a DERIVE frame: one step of the routers of one source."""

    source: int
    ts_ns: int
    source_name: str
    parts: list[DerivedPart]


def encode(derivation: Derivation) -> bytes:
    """Return the body of a DERIVE frame."""
    return msgspec.msgpack.encode(derivation)


def decode(body: bytes) -> Derivation:
    """Return what a DERIVE frame says."""
    return msgspec.msgpack.decode(body, type=Derivation)


def add_copy(batch: Batch, record: Fields, derivation: Derivation, part: DerivedPart) -> None:
    """Lay out the copy of a record as the target holds it."""
    seq, _, subject, payload, headers, tag, node, meta = record
    if subject == derivation.source_name.encode():
        subject = part.subject.encode()
    if part.stamp:
        meta = stamped(meta, derivation, part.stamp, seq)
    batch.add(
        subject,
        b"",
        headers,
        payload,
        b"" if part.bits & WITHOUT_TAG else tag,
        b"" if part.bits & WITHOUT_NODE else node,
        meta,
    )


def stamped(meta: bytes, derivation: Derivation, router: str, seq: int) -> bytes:
    """Return a copy's meta: the original's, and where the copy comes from."""
    source = derivation.source
    mark = {
        "idempotency_key": f"router:{router}:{source}:{source}:{seq}",
        "router": router,
        "source_topic": derivation.source_name,
        "source_topic_id": source,
        "source_epoch": source,
        "source_seq": seq,
    }
    fields: dict[str, Any] = {}
    if meta[:1] == b"{":
        fields = msgspec.json.decode(meta, type=dict[str, msgspec.Raw])
        fields.pop(MARK, None)
    if (meta and meta[:1] != b"{") or len(fields) >= MOST_META_KEYS:
        fields = {ORIGINAL: msgspec.Raw(meta)}
    return msgspec.json.encode({**fields, MARK: mark})


class _Mark(msgspec.Struct):
    router: str
    source_topic_id: int
    source_seq: int


class _Marked(msgspec.Struct):
    mark: _Mark = msgspec.field(name=MARK)


def origin_of(meta: bytes, router: str, source: int) -> int:
    """Return the source's sequence of a router's copy, 0 when the meta is not that of one."""
    if MARK.encode() not in meta:
        return 0
    try:
        mark = msgspec.json.decode(meta, type=_Marked).mark
    except msgspec.MsgspecError:
        return 0
    return mark.source_seq if (mark.router, mark.source_topic_id) == (router, source) else 0


def as_ranges(seqs: Iterable[int]) -> list[tuple[int, int]]:
    """Return ascending sequences as ranges."""
    found: list[tuple[int, int]] = []
    for seq in seqs:
        if found and found[-1][1] + 1 == seq:
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return found
