"""What a pipeline is, as values: sources, steps, sinks and when it runs. Nothing here acts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

from millstream.spark.server import LOGIN_OPTIONS

SERVER_OPTIONS = ("url", "timeout", "patience", *LOGIN_OPTIONS)  # which server, and as whom
DEFAULT_MAX_RECORDS = 500_000  # of one micro-batch, so that a long history does not come at once


class Mode(StrEnum):
    """What a sink gets of a changing result."""

    APPEND = "append"  # rows that will not change any more
    UPDATE = "update"  # rows that changed
    COMPLETE = "complete"  # the whole result again
    OVERWRITE = "overwrite"  # of a table, by a pipeline without streams


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late a row may come, by one of its columns."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class StreamTarget:
    """A stream to write to, created with ``create`` as its subjects where it is absent."""

    stream: str
    subject: str | None = None
    create: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamSource:
    """Records of streams (or topics: the same thing seen over HTTP)."""

    name: str
    streams: str
    options: Mapping[str, str] = field(default_factory=dict)
    json: str | None = None  # the payload's fields, in Spark's DDL
    expect: str | None = None  # what a good record fulfils
    quarantine: StreamTarget | None = None
    watermark: Watermark | None = None
    snapshot: bool = False  # what is there now, as a table


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table, as it is when the pipeline starts."""

    name: str
    format: str  # parquet, delta, iceberg, csv or json
    place: str
    catalog: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None  # of csv and json, in Spark's DDL; None lets Spark look at the files
    options: Mapping[str, str] = field(default_factory=dict)  # of Spark's own reader


Source: TypeAlias = StreamSource | TableSource


@dataclass(frozen=True, slots=True)
class SqlStep:
    """A query over sources and earlier steps, by their names."""

    name: str
    query: str
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True)
class PythonStep:
    """A function of frames: ``function(spark, *frames)`` returns a frame."""

    name: str
    inputs: tuple[str, ...]
    function: Callable[..., Any]
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True)
class WindowStep:
    """Aggregates by time and columns."""

    name: str
    input: str
    column: str
    size: str
    aggregates: Mapping[str, str]
    by: tuple[str, ...] = ()
    slide: str | None = None
    session: bool = False  # ``size`` is the pause that ends a session
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True)
class JoinStep:
    """Rows of one frame beside those of another with the same values in ``on``."""

    name: str
    left: str
    right: str
    on: tuple[str, ...]
    how: str = "inner"
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True)
class DistinctStep:
    """The first row of each key."""

    name: str
    input: str
    keys: tuple[str, ...]
    watermark: Watermark | None = None


Step: TypeAlias = SqlStep | PythonStep | WindowStep | JoinStep | DistinctStep


@dataclass(frozen=True, slots=True)
class StreamSink:
    """Rows become records of a stream, each batch whole and once."""

    name: str
    input: str
    target: StreamTarget
    mode: Mode = Mode.APPEND
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableSink:
    """Rows become rows of a table: parquet, delta, iceberg or jdbc."""

    name: str
    input: str
    format: str
    place: str
    mode: Mode = Mode.APPEND
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    catalog: Mapping[str, str] = field(default_factory=dict)


Sink: TypeAlias = StreamSink | TableSink


@dataclass(frozen=True, slots=True)
class Schedule:
    """When it runs: once over what is there, every so often, or all the time."""

    every: str | None = None
    continuous: bool = False

    @property
    def once(self) -> bool:
        """Whether it ends by itself."""
        return self.every is None and not self.continuous


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A whole pipeline; names in it are known to exist, and each comes before it is used."""

    name: str
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    server: Mapping[str, str] = field(default_factory=dict)  # url and login, as Spark options
    schedule: Schedule = field(default_factory=Schedule)
    checkpoint: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    home: Path = field(default_factory=Path)  # checkpoints go beside what is here
    former: str | None = None  # the name by which earlier versions kept its checkpoints

    @property
    def streaming(self) -> bool:
        """Whether a source goes on: then there are checkpoints and micro-batches."""
        return any(isinstance(one, StreamSource) and not one.snapshot for one in self.sources)
