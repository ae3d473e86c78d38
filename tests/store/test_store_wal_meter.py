"""What goes into the write-ahead log is counted exactly, whoever writes it."""

import sys
import threading
from collections.abc import Iterator

import pytest

from millstream.store.wal.entry import FrameRun, encode_entry
from millstream.store.wal.meter import WalMeter

THREADS, WRITES = 4, 3000


@pytest.fixture
def busy_switching() -> Iterator[None]:
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_writes_of_several_threads_are_all_counted(busy_switching: None) -> None:
    meter = WalMeter()
    head, body = encode_entry(1, 1, 1, 0, True, [FrameRun(1, 1, 3, 4)], [b"body"])
    size = len(head) + len(body)

    def write() -> None:
        for _ in range(WRITES):
            meter.wrote(head, size)
            meter.synced(0.0002)
            meter.rotated()

    threads = [threading.Thread(target=write) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = THREADS * WRITES
    assert (meter.batches, meter.frames, meter.rotations) == (total, 3 * total, total)
    assert meter.bytes_written == total * size
    assert (meter.syncs, meter.sync_us) == (total, 200 * total)


def test_what_is_no_entry_is_bytes_only() -> None:
    meter = WalMeter()
    meter.wrote(b"MSTRWAL\0" + bytes(56), 64)
    meter.wrote(b"", 0)
    assert (meter.bytes_written, meter.batches, meter.frames) == (64, 0, 0)
