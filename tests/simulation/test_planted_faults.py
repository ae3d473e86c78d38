"""The simulation is worth something only if it finds faults: each of these is planted, and is."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the simulation calls the Spark source, which needs pyspark")
pytest.importorskip("pyarrow", reason="the simulation calls the Spark source, which needs pyarrow")

from millstream.consumers.state import StateWriter
from millstream.kernel._batch import Batch
from millstream.queues.leases import Leases
from millstream.store.log.file_log import FileLog
from millstream.store.log.memory_log import MemoryLog
from millstream.store.recovery.rebuild import Logs
from millstream.store.wal import local_engine
from millstream.streams.deposits.deposits import Deposits
from millstream.streams.recall import Recall
from millstream.streams.stream import Stream
from simulation.history import run
from simulation.model import Violation

MOST = 400  # histories until a fault must have shown

Plant = Callable[[pytest.MonkeyPatch], None]


def replaced(owner: Any, name: str, new: Any) -> Plant:
    return lambda patch: patch.setattr(owner, name, new)


def nothing(*_: Any, **__: Any) -> None:
    """Do not do it."""


def answered_first() -> Plant:
    """Acknowledge a record before it is written."""
    real = FileLog._staged

    def staged(self: Any, first: int, last: int, count: int, headed: int, size: int, ts_ns: int,
               done: Any, noted: bool, holes: Any = ()) -> Any:  # fmt: skip
        self._host.post(partial(done, None))
        return real(self, first, last, count, headed, size, ts_ns, nothing, noted, holes)

    return replaced(FileLog, "_staged", staged)


def unsynced(self: Any) -> None:
    self.synced_position = self.position - 1


def given_back(self: Any, target: Any) -> None:
    """Count on behind the last record that is there, and say nothing."""


def unreported(self: Any, target: Any) -> None:
    """Leave the sequences out, and do not say why."""
    target.committed_seq = target.promise.reserved_seq
    target.next_seq = target.committed_seq + 1


def confirmed_at_once(self: Any, then: Callable[[], None]) -> None:
    then()


def whoever_asks(self: Any, seq: int, node: str, token: int | None) -> bool:
    lease = self.held.get(seq)
    return lease is not None and lease.node == node


def backwards() -> Plant:
    """Store the records of an HTTP batch from its end."""
    real = Stream.begin_append

    def swapped(self: Any, batch: Batch, at_once: bool = False) -> Any:
        turned = Batch()
        for at in reversed(range(len(batch))):
            subject, reply, headers, payload, *_ = batch.message(at)
            turned.add(subject, reply, headers, payload)
        return real(self, turned, at_once)

    return replaced(Stream, "begin_append", swapped)


def undeleted() -> Plant:
    real = Logs.control

    def control(self: Any, kind: int, log_id: int, content: bytes) -> None:
        if kind != 22:
            real(self, kind, log_id, content)

    return replaced(Logs, "control", control)


# Each with the history to begin with: those before it go by without that fault.
PLANTED: dict[str, tuple[Plant, int]] = {
    "an ack before the write": (answered_first(), 0),
    "an ack before the sync": (replaced(local_engine.LocalEngine, "sync", unsynced), 0),
    "ids forgotten at a restart": (replaced(Recall, "everything", nothing), 10),
    "sequences given back": (replaced(Logs, "_give_up", given_back), 55),
    "a gap that is not reported": (replaced(Logs, "_give_up", unreported), 55),
    "sequences in memory not waited for": (replaced(MemoryLog, "hold_above", nothing), 350),
    "consumer acks confirmed before they are kept": (
        replaced(StateWriter, "once_synced", confirmed_at_once),
        20,
    ),
    "a lease that is not fenced": (replaced(Leases, "_is_held", whoever_asks), 110),
    "a sink's batch twice": (replaced(Deposits, "recover", nothing), 8),
    "records of a batch in another order": (backwards(), 0),
    "deletes forgotten at a restart": (undeleted(), 10),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, first = PLANTED[name]
    plant(monkeypatch)
    for seed in range(first, first + MOST):
        try:
            run(seed)
        except Violation as found:
            print(f"\n{name}: seed {seed}: {found}")
            return
    pytest.fail(f"{MOST} histories did not find: {name}")
