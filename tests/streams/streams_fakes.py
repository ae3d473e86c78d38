"""Fakes of what stands around a stream: a log, a store and a hub that only remember."""

from collections.abc import Callable, Sequence
from typing import Any

from millstream.clock import ManualClock
from millstream.delivery.timers import Timers
from millstream.errors import MillstreamError
from millstream.kernel._batch import Batch
from millstream.kernel._frames import Frames, encode_batch
from millstream.kernel._index import SegmentIndex, SubjectTable
from millstream.store.log.log import Appended, Durability, LogState, Note
from millstream.store.recovery.recovery import Control
from millstream.streams.account_quota import NoQuotas
from millstream.streams.catalog import Catalog
from millstream.streams.config.config import StreamConfig
from millstream.streams.stream import Stream


class FakeSegment:
    """All of a fake log, as searches by subject see it."""

    def __init__(self, subjects: SubjectTable) -> None:
        self.base_seq = 1
        self.index = SegmentIndex(1, subjects)

    def read(
        self, at: int, stop: int, max_records: int, max_bytes: int, ids: bytes | None = None
    ) -> tuple[Frames, int, int]:
        raise NotImplementedError


class FakeLog:
    """Records in a dict; commits at once, or when ``commit`` is called after ``hold``."""

    def __init__(self, log_id: int = 1, durability: Durability = Durability.FSYNC) -> None:
        self.log_id = log_id
        self.durability = durability
        self.frames: dict[int, tuple[bytes, int, int, bytes]] = {}  # frame, ts, size, subject
        self.next = 1
        self.last = 0
        self.first = 1
        self.held: list[tuple[dict[int, tuple[bytes, int, int, bytes]], Any]] | None = None
        self.appends: list[int] = []
        self.reads = 0
        self.evict_floor = 0
        self.subjects = SubjectTable()
        self.segments = [FakeSegment(self.subjects)]

    @property
    def committed_seq(self) -> int:
        return self.last

    @property
    def next_seq(self) -> int:
        return self.next

    @property
    def count(self) -> int:
        return len(self.frames)

    def first_seq(self) -> int:
        return min(self.frames, default=self.last + 1)

    def start_at(self, first_seq: int) -> None:
        if self.next == 1 and first_seq > 1:
            self.next, self.last = first_seq, first_seq - 1

    def hold(self) -> None:
        self.held = []

    def commit(self, error: MillstreamError | None = None) -> None:
        held, self.held = self.held or [], None
        if error is not None and held:
            index = self.segments[0].index
            index.truncate(index.position(self.last + 1))
        for new, done in held:
            if error is None:
                self._take(new)
            done(error)

    def append(
        self,
        batch: Batch,
        start: int,
        count: int,
        ts_ns: int,
        done: Callable[..., None],
        note: Note | None = None,
        at_once: bool = False,
    ) -> Appended:
        """Commit within the call, unless it is held."""
        first, new = self.next, {}
        self.appends.append(count)
        for at in range(count):
            frame = encode_batch(
                batch, start + at, 1, self.log_id, first + at, ts_ns, None, 0, True
            )
            subject, _, headers, payload, _ = batch.message(start + at)
            size = 61 + len(subject) + len(payload) + len(headers)
            new[first + at] = (frame, ts_ns, size, subject)
            self.segments[0].index.append(0, first + at, ts_ns, subject, len(payload), 0, 0, 0, 0)
        self.next += count
        if self.held is not None:
            self.held.append((new, done))
            return Appended(first)
        self._take(new)
        return Appended(first, True)

    def append_exact(
        self,
        batch: Batch,
        start: int,
        count: int,
        seqs: Sequence[int],
        times_ns: Sequence[int],
        done: Callable[..., None],
    ) -> Appended:
        waiting = [count]

        def one_done(error: MillstreamError | None) -> None:
            waiting[0] -= 1
            if not waiting[0]:
                done(error)

        for at in range(count):
            self.next = seqs[at]
            appended = self.append(batch, start + at, 1, times_ns[at], one_done)
        return Appended(seqs[0], appended.is_committed)

    def skip_to(self, seq: int, done: Callable[..., None]) -> None:
        if seq > self.next:
            self.next, self.last = seq, seq - 1
        done(None)

    def _take(self, new: dict[int, tuple[bytes, int, int, bytes]]) -> None:
        self.frames |= new
        self.last = max(new)

    def read(self, start_seq: int, max_records: int, max_bytes: int) -> Frames:
        self.reads += 1
        buffer, offsets = b"", []
        for seq in sorted(self.frames):
            if seq < start_seq:
                continue
            frame = self.frames[seq][0]
            if offsets and (len(offsets) >= max_records or len(buffer) + len(frame) > max_bytes):
                break
            offsets.append(len(buffer))
            buffer += frame
        return Frames(buffer, offsets)

    def trim(self, first_kept: int, reason: str) -> None:
        gone = [seq for seq in self.frames if seq < first_kept]
        for seq in gone:
            del self.frames[seq]
        self.segments[0].index.delete_below(first_kept)
        if reason != "delete" and gone:
            self.evict_floor = max(gone)

    def delete(
        self,
        seqs: list[int],
        done: Callable[..., None],
        erased: Callable[..., None] | None = None,
        can_wait: bool = False,
    ) -> int:
        live = [seq for seq in seqs if self.frames.pop(seq, None) is not None]
        index = self.segments[0].index
        for seq in live:
            index.delete(index.find(seq))
        done(None)
        if erased is not None:
            erased(None)
        return len(live)

    def state(self) -> LogState:
        live = sorted(self.frames)
        first = live[0] if live else self.last + 1
        return LogState(
            first_seq=first,
            last_seq=self.last,
            synced_seq=self.last,
            count=len(live),
            bytes=sum(entry[2] for entry in self.frames.values()),
            first_ts_ns=self.frames[first][1] if live else 0,
            last_ts_ns=self.frames[live[-1]][1] if live else 0,
            evict_floor=self.evict_floor,
            gaps=(),
            headed=sum(bool(Frames(e[0], [0]).record(0)[4]) for e in self.frames.values()),
        )

    def last_by_subject(self, subject: bytes) -> int:
        return max((seq for seq, entry in self.frames.items() if entry[3] == subject), default=0)

    def seek_time(self, ts_ns: int) -> int:
        late = (seq for seq, entry in self.frames.items() if entry[1] >= ts_ns)
        return min(late, default=self.last + 1)


class FakeStore:
    """Keeps logs and the control frames it was given, so that a test can replay them."""

    def __init__(self) -> None:
        self.logs: dict[int, FakeLog] = {}
        self.controls: list[Control] = []
        self.synced: list[bool] = []

    def create_log(self, log_id: int, durability: Durability, compressed: bool = False) -> FakeLog:
        found = self.logs.setdefault(log_id, FakeLog(log_id, durability))
        found.durability = durability
        return found

    def log(self, log_id: int) -> FakeLog | None:
        return self.logs.get(log_id)

    def drop_log(self, log_id: int) -> None:
        del self.logs[log_id]

    def control(
        self, kind: int, log_id: int, body: bytes, done: Callable[..., None], sync: bool = True
    ) -> None:
        self.controls.append(Control(kind, log_id, body, len(self.controls) + 1))
        self.synced.append(sync)
        done(None)


class FakeInterest:
    def __init__(self) -> None:
        self.sinks: dict[int, tuple[bytes, object]] = {}
        self.paused: set[int] = set()
        self.next = 1

    def add_sink(self, pattern: bytes, sink: object, queue: bytes = b"") -> int:
        self.sinks[self.next] = (pattern, sink)
        self.next += 1
        return self.next - 1

    def add_sinks(self, patterns: list[bytes], sink: object) -> list[int]:
        return [self.add_sink(pattern, sink) for pattern in patterns]

    def remove_sinks(self, handles: list[int]) -> None:
        for handle in handles:
            self.remove_sink(handle)

    def remove_sink(self, handle: int) -> bool:
        return self.sinks.pop(handle, None) is not None

    def pause_sink(self, handle: int, paused: bool) -> None:
        (self.paused.add if paused else self.paused.discard)(handle)

    def has_interest(self, subject: bytes) -> bool:
        return True

    def patterns(self) -> list[bytes]:
        return [pattern for pattern, _ in self.sinks.values()]


class FakeHub:
    """Remembers every message as (subject, reply, headers, payload)."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, bytes, bytes, bytes]] = []
        self.flushes = 0

    def publish(
        self,
        interest: object,
        subject: bytes,
        reply: bytes,
        headers: bytes,
        payload: bytes,
        shown: bytes = b"",
        origin: int = 0,
    ) -> int:
        self.sent.append((subject, reply, headers, payload))
        return 1

    def publish_acks(
        self,
        interest: object,
        batch: Batch,
        start: int,
        count: int,
        first_seq: int,
        prefix: bytes,
        suffix: bytes,
    ) -> int:
        for at in range(count):
            reply = batch.message(start + at)[1]
            if reply:
                self.sent.append((reply, b"", b"", b"%s%d%s" % (prefix, first_seq + at, suffix)))
        return count

    def publish_frames(
        self,
        interest: object,
        routes: list[bytes],
        frames: Frames,
        start: int,
        replies: list[bytes],
    ) -> int:
        for at, route in enumerate(routes):
            _, _, _, payload, headers, *_ = frames.record(start + at)
            self.sent.append((route, replies[at], headers, payload))
        return len(routes)

    def room(self, interest: object, subject: bytes) -> int:
        return 8 << 20

    def heard_for(self, interest: object, subject: bytes) -> int:
        return 1 << 40

    def flush(self) -> None:
        self.flushes += 1

    def take(self) -> list[tuple[bytes, bytes, bytes, bytes]]:
        sent, self.sent = self.sent, []
        return sent


class _Bytes(NoQuotas):
    def __init__(self, most: int, in_all: int) -> None:
        self._most = most
        self._in_all = in_all

    def most_bytes(self, account: str, storage: str) -> int:
        return self._most

    def most_bytes_in_all(self, storage: str) -> int:
        return self._in_all


class World:
    """A catalog over fakes, with a clock that the test moves."""

    def __init__(
        self, store: FakeStore | None = None, most_bytes: int = -1, most_in_all: int = -1
    ) -> None:
        """``most_bytes`` is what an account may store in all its streams of a kind.

        ``most_in_all`` is what all accounts may.
        """
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.store = store if store is not None else FakeStore()
        self.hub = FakeHub()
        self.interest = FakeInterest()
        self.catalog = Catalog(
            self.store,
            self.clock,
            self.timers,
            self.hub,  # type: ignore[arg-type]
            {"$G": self.interest},  # type: ignore[dict-item]
            quotas=_Bytes(most_bytes, most_in_all),
        )

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for _ in range(100):
            if not self.timers.run_due():
                return


def batch_of(*messages: tuple[bytes, bytes, bytes, bytes]) -> Batch:
    """Return a batch of (subject, reply, headers, payload)."""
    batch = Batch()
    for message in messages:
        batch.add(*message)
    return batch


def headers_of(**values: str) -> bytes:
    """Return a header block; underscores stand for dashes."""
    lines = "".join(f"{key.replace('_', '-')}: {value}\r\n" for key, value in values.items())
    return b"NATS/1.0\r\n" + lines.encode() + b"\r\n"


async def make_named(world: World, name: str, **config: object) -> Stream:
    """Return a stream with nothing but what is asked for."""
    wire = {"name": name, **config}
    stream, _ = await world.catalog.create(StreamConfig.from_request(wire))
    return stream


def put(stream: Stream, subject: bytes, payload: bytes = b"x", headers: bytes = b"") -> None:
    """Publish one message that nobody waits for."""
    stream.deliver(batch_of((subject, b"", headers, payload)))


async def make(world: World, **config: object) -> Stream:
    """Return the stream S of all subjects below s."""
    config = {"name": "S", "subjects": ["s.>"], **config}
    stream, _ = await world.catalog.create(StreamConfig.from_request(config))
    return stream
