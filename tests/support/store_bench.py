"""A store on a fake disk, driven by hand: no thread, no clock but the test's."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from millstream.clock import ManualClock
from millstream.errors import MillstreamError
from millstream.kernel._batch import Batch
from millstream.store.cold.options import ColdOptions
from millstream.store.disk.files import Files
from millstream.store.disk.keys import KeyRing
from millstream.store.log.file_log import FileLog, LogOptions
from millstream.store.options import StoreOptions
from millstream.store.shards import Engines
from millstream.store.store import Store
from support.fake_disk import Crashed, FakeDisk

SMALL = StoreOptions(
    wal_file_bytes=4096,
    threads=False,
    nonce=7,
    log=LogOptions(
        segment_records=8,
        segment_bytes=2048,
        flush_bytes=512,
        cache_bytes=256,
        waste_bytes=256,
        reserve_records=256,  # most tests are about something else
    ),
)

COMPRESSED = replace(SMALL)  # logs are told one by one
SEALED = replace(SMALL, ring=KeyRing(b"a secret of the tests"))
COLD = replace(SMALL, cold=ColdOptions(place="/cold", hot_segments=0))
PROMISING = replace(SMALL, log=replace(SMALL.log, reserve_records=4))  # ahead, many times
FORMS = {"plain": SMALL, "compressed": COMPRESSED, "sealed": SEALED, "both": SEALED}

Answer = list[MillstreamError | None]


def wal_syncs(disk: FakeDisk) -> int:
    """Return how often the write-ahead log was synced."""
    return sum(call.startswith("sync /data/wal") for call in disk.trace)


class Bench:
    """One run of a store: open it, use it, let the loop turn by ``run``."""

    def __init__(
        self,
        files: Files,
        options: StoreOptions = SMALL,
        clock: ManualClock | None = None,
        directory: str = "/data",
        engines: Engines | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.loop_first = False  # small groups are written by the loop, not by the committer
        self._posted: deque[Callable[[], None]] = deque()
        self.deferred: list[Callable[[], None]] | None = None  # what the loop defers, if held
        self.store = Store.open(
            directory, files, self.clock, self._posted.append, options, defer=self._defer,
            engines=engines,
        )  # fmt: skip

    def _defer(self, call: Callable[[], None]) -> None:
        """Make a call in the loop's next turn, or when the test likes."""
        (self._posted if self.deferred is None else self.deferred).append(call)

    def run(self) -> None:
        """Commit and call back until nothing is left to do."""
        while True:
            while self.loop_first and self._posted:
                self._posted.popleft()()
            self.store.pump()
            if not self._posted:
                return
            while self._posted:
                self._posted.popleft()()

    def deliver(self) -> None:
        """Call back what is posted, also when the disk is gone."""
        while self._posted:
            with suppress(Crashed):
                self._posted.popleft()()

    def append(
        self, log: FileLog, payloads: list[bytes], subject: bytes = b"s"
    ) -> tuple[int, Answer]:
        """Stage one batch; the answer fills once the loop turned."""
        batch = Batch()
        for payload in payloads:
            batch.add(subject, b"", b"", payload)
        answer: Answer = []
        appended = log.append(batch, 0, len(payloads), self.clock.time_ns(), answer.append)
        return appended.first_seq, answer

    def append_exact(self, log: FileLog, seqs: list[int], payloads: list[bytes]) -> Answer:
        """Stage one batch under these sequences; the answer fills once the loop turned."""
        batch = Batch()
        for payload in payloads:
            batch.add(b"s", b"", b"", payload)
        answer: Answer = []
        times_ns = [self.clock.time_ns()] * len(seqs)
        log.append_exact(batch, 0, len(seqs), seqs, times_ns, answer.append)
        return answer

    def close(self) -> None:
        self.store.close()
        while self._posted:
            self._posted.popleft()()


def records(log: FileLog) -> list[tuple[Any, ...]]:
    """Return every record that readers get."""
    found: list[tuple[Any, ...]] = []
    seq = 1
    while len(frames := log.read(seq, 1000, 1 << 20)):
        found += list(frames)
        seq = frames.last_seq + 1
    return found


def image(store: Store) -> dict[int, Any]:
    """Return all that a client could see of every log; reading comes first, as it finds damage."""
    read = {log_id: records(log) for log_id in store.log_ids() if (log := store.log(log_id))}
    return {
        log_id: (log.state(), read[log_id])
        for log_id in store.log_ids()
        if (log := store.log(log_id))
    }
