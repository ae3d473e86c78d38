"""Where a sink's checkpoint is: a place of its own for each target, or the one it had before."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from millstream.pipelines.file.spec import Mode, Pipeline, Sink, StreamSink, TableSink
from millstream.pipelines.tables.parquet_table import SPARKS_LIST, has_sparks_list, local_path

TARGET = "millstream-target"  # in a checkpoint that was made without it: whom it belongs to


def checkpoint_of(pipeline: Pipeline, sink: Sink, data: Path | None) -> str:
    """Return the directory (or url) of a sink's checkpoint.

    Its name holds the target, so that a sink which is given another one starts there from the
    beginning. A checkpoint without that, of an earlier version, is used where it has filled
    this target.
    """
    base = home_of(pipeline, data)
    mark = _mark(pipeline, sink)
    own = f"{base}/{sink.name}-{mark}"
    if "://" in base or Path(own).is_dir():
        return own
    for old in _former(pipeline, sink, base):
        if _filled(old, sink, mark):
            (old / TARGET).write_text(mark)
            return str(old)
    return own


def home_of(pipeline: Pipeline, data: Path | None) -> str:
    """Return what the checkpoints of a pipeline are below."""
    return pipeline.checkpoint or str(folder(pipeline, data) / "checkpoints" / pipeline.name)


def folder(pipeline: Pipeline, data: Path | None) -> Path:
    """Return where a pipeline keeps what it remembers: beside its file unless told otherwise."""
    return (pipeline.home if data is None else data).resolve() / ".millstream"


def uses_sparks_list(sink: TableSink, checkpoint: str) -> bool:
    """Say whether Spark's own file sink has to write this table, as it did before."""
    table = local_path(sink.place)
    if table is None:
        return True  # not a matter of files that this process can move
    return has_sparks_list(table) and _agree(table, Path(checkpoint))


def is_new(checkpoint: str) -> bool:
    """Say whether nothing was taken by this checkpoint yet."""
    return last_number(Path(checkpoint) / "offsets") < 0


def query_id(checkpoint: str) -> str:
    """Return what tells the batches of this checkpoint from those of any other.

    Spark keeps the id of the query there. Batches count from 0 again when a checkpoint is
    removed, so the name of a sink would make a table refuse what it has not got.
    """
    metadata = Path(checkpoint) / "metadata"
    if not metadata.is_file():  # not on this machine
        return checkpoint
    return str(json.loads(metadata.read_text())["id"])


def last_number(log: Path) -> int:
    """Return the highest number that names a file of one of Spark's logs, -1 where none does."""
    if not log.is_dir():
        return -1
    names = (path.name.removesuffix(".compact") for path in log.iterdir())
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def short_hash(*parts: str) -> str:
    """Return a few letters that stand for these words."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]


def _mark(pipeline: Pipeline, sink: Sink) -> str:
    """Return what stands for a sink's target; a folder that moves as a whole keeps it."""
    if isinstance(sink, StreamSink):
        return short_hash("stream", sink.options.get("url", ""), sink.target.stream)
    place = sink.place
    if (path := local_path(place)) is not None and path.is_relative_to(pipeline.home.resolve()):
        place = str(path.relative_to(pipeline.home.resolve()))
    catalog = sorted(f"{key}={value}" for key, value in sink.catalog.items())
    return short_hash(sink.format, place, sink.options.get("dbtable", ""), *catalog)


def _former(pipeline: Pipeline, sink: Sink, base: str) -> Iterator[Path]:
    """Return where earlier versions kept the checkpoint: under the current directory, say."""
    names = dict.fromkeys((pipeline.name, pipeline.former or pipeline.name))
    for name in names:
        places = (Path(base).with_name(name), Path(".millstream", "checkpoints", name).resolve())
        for place in dict.fromkeys(places):
            yield place / sink.name


def _filled(old: Path, sink: Sink, mark: str) -> bool:
    """Say whether a checkpoint that does not name its target has filled this one."""
    if not (old / "metadata").is_file():
        return False
    if (note := old / TARGET).is_file():
        return note.read_text() == mark
    if isinstance(sink, StreamSink) or sink.format in ("iceberg", "jdbc"):
        return True
    table = local_path(sink.place)
    if table is None or sink.mode is not Mode.APPEND or sink.format != "parquet":
        return table is None or table.is_dir()
    return has_sparks_list(table) and _agree(table, old)


def _agree(table: Path, checkpoint: Path) -> bool:
    """Say whether Spark's list in a table may be that of this checkpoint, by their last batches."""
    listed = last_number(table / SPARKS_LIST)
    return last_number(checkpoint / "commits") <= listed <= last_number(checkpoint / "offsets")
