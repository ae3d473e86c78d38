"""A job's rows go into a stream by numbered batches, each whole and once, however long it takes.

A commit of the server holds half a GiB at most, and a job may have more. So its rows are kept
as files first, in their order, and cut into batches from there; what was begun and not finished
goes on with the same rows, the same cuts and the same sink:

    <place>/rows/        the rows with their numbers
    <place>/plan.json    the sink, the batches, and which one is next
"""

import os
import shutil
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

import msgspec

from millstream.client.streams import Batch
from millstream.spark.options import parse_write
from millstream.spark.writing.entries import OWN_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BATCH_BYTES = 256 << 20  # half of what a commit may hold: sizes are estimates
STRIDE = 200  # rows that are weighed together: even the largest are a batch that is taken
END = (1 << 53) - 1  # the number after all batches: what is written again later is dropped
ROW, SIZE = "_millstream_row", "_millstream_size"
PARTITION = 33  # the bits of a row's number below that of its partition
ENTRY_BYTES = 64  # of a record besides what it says


class JobPlan(msgspec.Struct, frozen=True):
    """How far a job is; ``batches`` are the first and last row of each."""

    sink: str
    once: bool
    rows: int
    batches: list[tuple[int, int]]
    next: int = 0


class Stride(msgspec.Struct, frozen=True):
    """Rows that follow each other, as far as their size matters."""

    first: int
    last: int
    rows: int
    size: int


def publish(
    frame: "DataFrame",
    options: dict[str, str],
    place: Path,
    sink_id: str | None,
    batch_bytes: int = BATCH_BYTES,
) -> int:
    """Write all rows to a stream, and return how many they are.

    With a ``sink_id`` the same job done again adds nothing. Without one it is a job of its own,
    unless the last one with this ``place`` was not finished: then that one is.
    """
    plan = _begun(place) or _staged(frame, place, sink_id, batch_bytes)
    kept = frame.sparkSession.read.parquet(str(place / "rows")) if plan.batches else frame
    for number in range(plan.next, len(plan.batches)):
        first, last = plan.batches[number]
        rows = kept.where(f"{ROW} between {first} and {last}").orderBy(ROW).drop(ROW, SIZE)
        named = {**options, "sinkId": plan.sink, "batchId": str(number)}
        rows.write.format("millstream").options(**named).mode("append").save()
        plan = msgspec.structs.replace(plan, next=number + 1)
        _save(plan, place)
    if plan.batches:
        asked = parse_write(options)
        asked.server.streams().commit(asked.stream, Batch(plan.sink, END, once=plan.once), [])
    shutil.rmtree(place)
    return plan.rows


def batches_of(strides: list[Stride], most: int) -> list[tuple[int, int]]:
    """Join strides to batches of at most so many bytes; one that has more is a batch of its own."""
    found: list[tuple[int, int]] = []
    held = 0
    for one in strides:
        if found and held + one.size <= most:
            found[-1] = (found[-1][0], one.last)
            held += one.size
        else:
            found.append((one.first, one.last))
            held = one.size
    return found


def _begun(place: Path) -> JobPlan | None:
    file = place / "plan.json"
    return msgspec.json.decode(file.read_bytes(), type=JobPlan) if file.is_file() else None


def _staged(frame: "DataFrame", place: Path, sink_id: str | None, batch_bytes: int) -> JobPlan:
    """Keep the rows and cut them into batches; a plan is there only when all of it is."""
    from pyspark.sql import functions as F

    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    numbered = _storable(frame).withColumn(ROW, F.monotonically_increasing_id())
    numbered.withColumn(SIZE, _size(numbered)).write.parquet(str(place / "rows"))
    kept = frame.sparkSession.read.parquet(str(place / "rows"))
    within = F.col(ROW).bitwiseAND((1 << PARTITION) - 1)
    stride = (F.shiftright(ROW, PARTITION).alias("part"), F.floor(within / STRIDE).alias("stride"))
    sums = (F.min(ROW), F.max(ROW), F.count(F.lit(1)), F.sum(SIZE))
    found = kept.groupBy(*stride).agg(*sums).drop("part", "stride").collect()
    strides = sorted((Stride(*row) for row in found), key=lambda one: one.first)
    rows = sum(one.rows for one in strides)
    name = sink_id or f"job-{token_hex(12)}"
    plan = JobPlan(name, sink_id is None, rows, batches_of(strides, batch_bytes))
    _save(plan, place)
    return plan


def _save(plan: JobPlan, place: Path) -> None:
    new = place / "plan.new"
    new.write_bytes(msgspec.json.encode(plan))
    os.replace(new, place / "plan.json")


def _storable(frame: "DataFrame") -> "DataFrame":
    """Return the frame with nulls of no type as text: files have no column without a type."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import NullType

    bare = [field.name for field in frame.schema if isinstance(field.dataType, NullType)]
    return frame.withColumns({name: F.col(f"`{name}`").cast("string") for name in bare})


def _size(frame: "DataFrame") -> "Column":
    """Return about how many bytes a row's record has."""
    from pyspark.sql import functions as F

    kinds = {field.name: field.dataType.typeName() for field in frame.schema}
    others = [F.col(f"`{name}`") for name in kinds if name not in (*OWN_COLUMNS, ROW)]
    total = F.lit(ENTRY_BYTES)
    for name in OWN_COLUMNS:
        if name in kinds:
            plain = kinds[name] in ("string", "binary", "varchar", "char")
            text = F.col(name) if plain else F.to_json(F.struct(name))
            total += F.coalesce(F.octet_length(text), F.lit(0))
    if "payload" not in kinds:
        total += F.coalesce(F.octet_length(F.to_json(F.struct(*others))), F.lit(0))
    return total.cast("bigint")
