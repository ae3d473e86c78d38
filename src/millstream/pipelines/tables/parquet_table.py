"""A Parquet table that several queries append to, each batch of each of them once.

Spark's own file sink knows a batch by its number alone: a second query counts from 0 again, and
what has a number that the table knows is skipped. Here a batch is known by its query and number,
and every reader of Parquet sees whole files only:

    table/_millstream/<query>-<batch>/  what a batch has written so far; readers skip names with _
    table/_millstream/<query>.json      the query's last batch, and where its files go
    table/[column=value/]part-<query>-<batch>-<number>.parquet

The note is replaced in one step once all files of a batch are written; then they are moved. A batch
that comes again after a crash is in the note, and only what was not moved yet is moved.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from millstream.pipelines.file.spec import TableSink
from millstream.pipelines.problems import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OWN = "_millstream"
SPARKS_LIST = "_spark_metadata"
_PLAIN = re.compile(r"[0-9a-f-]{1,64}")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://")


class TableOwner(msgspec.Struct, frozen=True):
    """Whose batches these are, as told to whoever comes later."""

    pipeline: str = ""
    sink: str = ""
    checkpoint: str = ""
    streams: tuple[str, ...] = ()


class BatchNote(msgspec.Struct, frozen=True):
    """The last batch of a query: files that were written, and where each belongs in the table."""

    batch: int
    moves: list[tuple[str, str]]
    owner: TableOwner = TableOwner()


def local_path(place: str) -> Path | None:
    """Return the directory of a table, None where it is no matter of this file system."""
    if place.startswith("file:"):
        return Path(unquote(urlsplit(place).path))
    return None if _SCHEME.match(place) else Path(place)


def has_sparks_list(table: Path) -> bool:
    """Say whether Spark's file sink keeps a list there, besides which readers see nothing."""
    return (table / SPARKS_LIST).is_dir()


def sparks_list_refused(place: str) -> PipelineError:
    """Return why nothing else can be added to a table of Spark's file sink."""
    return PipelineError(
        f"the table {place} has a list of its files ({SPARKS_LIST}) that only the checkpoint which "
        "began it can add to, and batches of another would be skipped: write to another table, or "
        "copy this one by `pipeline compact` and go on with the copy"
    )


def notes(table: Path) -> Iterator[tuple[Path, BatchNote]]:
    """Return the last batch of each query that has written to a table."""
    for file in sorted((table / OWN).glob("*.json")):
        yield file, msgspec.json.decode(file.read_bytes(), type=BatchNote)


class AppendedParquet:
    """The table as one query sees it; ``identity`` tells its batches from those of others."""

    def __init__(self, sink: TableSink, identity: str, owner: TableOwner | None = None) -> None:
        table = local_path(sink.place)
        assert table is not None
        self._table = table
        self._sink = sink
        self._owner = owner or TableOwner()
        self._lasting = bool(identity)
        self._query = _named(identity or f"job-{token_hex(12)}")

    def put(self, frame: "DataFrame", batch: int | None) -> int:
        """Add the rows unless this batch is there already; returns how many it added."""
        number = batch or 0
        if has_sparks_list(self._table):
            raise sparks_list_refused(self._sink.place)
        last = self._last()
        if last is not None:
            self._settle(last)
            if number <= last.batch:
                return 0
        else:
            self._check_first(number)
        self._stage(frame, number)
        moves, rows = self._planned(number)
        note = BatchNote(number, moves, self._owner)
        self._write(note)
        self._settle(note)
        if not self._lasting:
            self._file.unlink()
        return rows

    def _stage(self, frame: "DataFrame", number: int) -> None:
        staged = self._staged(number)
        writer = frame.write.mode("overwrite").options(**self._sink.options)
        try:
            writer.partitionBy(*self._sink.partition_by).parquet(str(staged))
        except BaseException:
            shutil.rmtree(staged, ignore_errors=True)
            raise

    def _staged(self, number: int) -> Path:
        return self._table / OWN / f"{self._query}-{number}"

    @property
    def _file(self) -> Path:
        return self._table / OWN / f"{self._query}.json"

    def _last(self) -> BatchNote | None:
        if not self._file.is_file():
            return None
        return msgspec.json.decode(self._file.read_bytes(), type=BatchNote)

    def _check_first(self, number: int) -> None:
        """Refuse what would be missing or twice where this query has no batch in the table."""
        checkpoint = self._owner.checkpoint
        if number and not self._table.is_dir():
            raise PipelineError(
                f"the table {self._table} that was filled before is gone: remove {checkpoint} too, "
                "to fill it again from the start, or bring it back"
            )
        mine = (self._owner.pipeline, self._owner.sink)
        for file, note in notes(self._table):
            if self._owner.pipeline and (note.owner.pipeline, note.owner.sink) == mine:
                raise PipelineError(
                    f"the table {self._table} has rows of this pipeline by another checkpoint "
                    f"({note.owner.checkpoint}), so they would be there twice: go on with that "
                    f"one, write to another table, or remove {file} if you want them twice"
                )

    def _planned(self, number: int) -> tuple[list[tuple[str, str]], int]:
        """Return where each written file goes, and how many rows they have."""
        staged = self._staged(number)
        moves: list[tuple[str, str]] = []
        total = 0
        for file in sorted(staged.rglob("part-*.parquet")):
            rows = rows_of(file)
            if not rows and number:  # the first one shows the columns, more say nothing
                continue
            total += rows
            folder = file.parent.relative_to(staged)
            name = f"part-{self._query}-{number:06d}-{len(moves):05d}{''.join(file.suffixes[-2:])}"
            moves.append((str(file.relative_to(staged)), str(folder / name)))
        return moves, total

    def _write(self, note: BatchNote) -> None:
        new = self._file.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(note))
        os.replace(new, self._file)

    def _settle(self, note: BatchNote) -> None:
        """Move what is not in its place yet."""
        staged = self._staged(note.batch)
        if not staged.is_dir():
            return
        for source, target in note.moves:
            place = self._table / target
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.replace(staged / source, place)
            except FileNotFoundError:  # moved before a crash
                continue
        shutil.rmtree(staged)


def rows_in(folder: Path) -> int:
    """Return how many rows the files below a directory have."""
    return sum(rows_of(file) for file in folder.rglob("part-*.parquet"))


def rows_of(file: Path) -> int:
    """Return how many rows a Parquet file has, from its footer."""
    import pyarrow.parquet as pq

    return int(pq.read_metadata(file).num_rows)


def _named(identity: str) -> str:
    """Return a name for files: an id of Spark as it is, anything else by its hash."""
    if _PLAIN.fullmatch(identity):
        return identity
    return hashlib.sha256(identity.encode()).hexdigest()[:32]
