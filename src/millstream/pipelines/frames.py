"""Sources and steps become Spark frames, by name."""

from typing import TYPE_CHECKING, assert_never

from millstream.pipelines.file.spec import (
    DistinctStep,
    JoinStep,
    Pipeline,
    PythonStep,
    Source,
    SqlStep,
    Step,
    StreamSource,
    TableSource,
    Watermark,
    WindowStep,
)
from millstream.pipelines.problems import PipelineError
from millstream.pipelines.tables import tables
from millstream.pipelines.tables.quarantine import bad_rows, good_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE = "30"
Frames = dict[str, "DataFrame"]


def build_frames(spark: "SparkSession", pipeline: Pipeline) -> Frames:
    """Return the frames of all sources and steps; each is a temporary view of its name too.

    What a source quarantines is there as ``<source>!bad``.
    """
    frames: Frames = {}
    for source in pipeline.sources:
        if isinstance(source, StreamSource) and source.quarantine is not None:
            frames[f"{source.name}!bad"] = bad_rows(records(spark, pipeline, source), source)
        _keep(frames, source.name, _source(spark, pipeline, source))
    for step in pipeline.steps:
        _keep(frames, step.name, _step(spark, step, frames))
    return frames


def _keep(frames: Frames, name: str, frame: "DataFrame") -> None:
    frame.createOrReplaceTempView(name)
    frames[name] = frame


def _source(spark: "SparkSession", pipeline: Pipeline, source: Source) -> "DataFrame":
    match source:
        case StreamSource():
            found = records(spark, pipeline, source)
            return _late(good_rows(found, source), source.watermark)
        case TableSource():
            return tables.read(spark, source)
        case _:
            assert_never(source)


def records(spark: "SparkSession", pipeline: Pipeline, source: StreamSource) -> "DataFrame":
    """Return the records of a source as they are in the stream."""
    reader = spark.read if source.snapshot else spark.readStream
    # Tables of earlier runs have the payload as bytes, and a dead letter needs them.
    # The server was asked before Spark started: from here on it is waited for.
    before = {"payloadFormat": "binary", "patience": PATIENCE, **pipeline.server}
    reader = reader.format("millstream").options(**before)
    reader = reader.options(**source.options)
    if source.json is not None or source.quarantine is not None:
        reader = reader.option("payloadFormat", "binary")
    frame: DataFrame = reader.option("stream", source.streams).load()
    return frame


def _late(frame: "DataFrame", watermark: Watermark | None) -> "DataFrame":
    return frame if watermark is None else frame.withWatermark(watermark.column, watermark.delay)


def _step(spark: "SparkSession", step: Step, frames: Frames) -> "DataFrame":
    match step:
        case SqlStep():
            return _late(spark.sql(step.query), step.watermark)
        case PythonStep():
            return _late(_called(spark, step, frames), step.watermark)
        case WindowStep():
            return _windows(frames[step.input], step)
        case JoinStep():
            joined = frames[step.left].join(frames[step.right], list(step.on), step.how)
            return _late(joined, step.watermark)
        case DistinctStep():
            return _distinct(frames[step.input], step)
        case _:
            assert_never(step)


def _called(spark: "SparkSession", step: PythonStep, frames: Frames) -> "DataFrame":
    result = step.function(spark, *(frames[name] for name in step.inputs))
    if not hasattr(result, "createOrReplaceTempView"):
        kind = type(result).__name__
        raise PipelineError(f"step {step.name!r}: the function returned {kind}, not a DataFrame")
    return result


def _windows(frame: "DataFrame", step: WindowStep) -> "DataFrame":
    """Aggregate by window; its bounds become the columns window_start and window_end."""
    from pyspark.sql import functions as F

    if step.watermark is not None:  # of what goes in: afterwards it is too late
        frame = frame.withWatermark(step.watermark.column, step.watermark.delay)
    if step.session:
        window = F.session_window(step.column, step.size)
    else:
        window = F.window(step.column, step.size, step.slide)
    totals = [F.expr(text).alias(name) for name, text in step.aggregates.items()]
    grouped = frame.groupBy(window.alias("window"), *step.by).agg(*totals)
    bounds = ["window.start as window_start", "window.end as window_end"]
    return grouped.selectExpr(*bounds, *(f"`{name}`" for name in (*step.by, *step.aggregates)))


def _distinct(frame: "DataFrame", step: DistinctStep) -> "DataFrame":
    """Drop repeats; with a watermark Spark forgets keys that are too old to come again."""
    keys = list(step.keys) or None
    if not frame.isStreaming or step.watermark is None:
        return frame.dropDuplicates(keys)
    marked = frame.withWatermark(step.watermark.column, step.watermark.delay)
    return marked.dropDuplicatesWithinWatermark(keys)
