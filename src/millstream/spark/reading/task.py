"""What the tasks of a read are told, and how they fail.

Apart from what carries them out: Spark starts processes that only plan, and those should not wait
for Arrow and numpy.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.spark.options import Access
from millstream.spark.problems import DataLoss, StreamReplaced
from millstream.spark.reading.planner import Lost, describe
from millstream.spark.server import Server


@dataclass(frozen=True, slots=True)
class Task:
    """What all parts of one read have in common; small, as Spark pickles it to every task."""

    server: Server
    stream: str
    incarnation: int
    columns: tuple[str, ...]
    subject: str | None
    start_ns: int | None
    end_ns: int | None
    access: Access
    fail_on_data_loss: bool
    known_lost: tuple[Lost, ...] = ()


def loss(stream: str, gaps: Sequence[Lost]) -> DataLoss:
    """Return the failure that names what is gone and how to read on."""
    return DataLoss(
        f"stream {stream!r} has lost records {describe(gaps)}; set failOnDataLoss=false to read "
        "the others and get one row for each lost range (columns gap_from, gap_to, gap_reason)"
    )


def replaced(stream: str) -> StreamReplaced:
    """Return the failure of a read whose stream is not the one it was planned for."""
    return StreamReplaced(
        f"stream {stream!r} was deleted and created again: its sequences mean other records now; "
        "start the read afresh (a streaming query needs a new checkpoint)"
    )


def not_the_same(stream: str) -> StreamReplaced:
    """Return the failure of a query whose checkpoint was written for another stream."""
    return StreamReplaced(
        f"stream {stream!r} is not the one that this checkpoint was written for: it was deleted "
        "and created again, it is on another server or data directory, or it is in memory alone "
        "and the server was started anew: its sequences mean other records; give the query a "
        "checkpointLocation that is new (and, so that it does not start at the first record, "
        "startFrom, startSeq or startTime)"
    )
