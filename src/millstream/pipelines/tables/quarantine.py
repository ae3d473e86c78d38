"""Records that are what the pipeline expects, and those that are not."""

from typing import TYPE_CHECKING

from millstream.pipelines.file.spec import StreamSource

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NO_JSON = "the payload is no JSON of the fields that the source names"
CORRUPT = "_millstream_unread"
PARSED = "_millstream_parsed"
RECORD = "_millstream_record"  # what a dead letter needs, whatever the fields are called
REASON = "_millstream_reason"  # why a record is bad; null for a good one
KEPT = ("stream", "seq", "subject", "payload", "tag")
GAPS = ("gap_from", "gap_to", "gap_reason")
GAP = "_millstream_gap"  # the range that a row tells to be lost; null for a record


def good_rows(frame: "DataFrame", source: StreamSource) -> "DataFrame":
    """Return the rows that are as expected, the fields of their JSON as columns.

    A field hides a column of the record that has its name. Without a quarantine, the first bad
    record fails the query: nothing is dropped in silence. A row that tells of a lost range is no
    record: it goes to the quarantine, and where there is none it is passed on as it is.
    """
    if source.json is None and source.expect is None:
        return frame
    from pyspark.sql import functions as F

    if source.quarantine is not None:
        good = F.col(REASON).isNull() & F.col(GAP).isNull()
    else:
        good = _or_fail(source)
    return _judged(frame, source).where(good).drop(RECORD, REASON, GAP)


def bad_rows(frame: "DataFrame", source: StreamSource) -> "DataFrame":
    """Return the other rows as dead letters: the payload as it was, headers say why and whence."""
    from pyspark.sql import functions as F

    whence = {
        "Millstream-Stream": F.col(f"{RECORD}.stream"),
        "Millstream-Seq": F.col(f"{RECORD}.seq").cast("string"),
        "Millstream-Subject": F.col(f"{RECORD}.subject"),
        "Millstream-Reason": F.coalesce(REASON, _lost()),
    }
    pairs = [part for name, value in whence.items() for part in (F.lit(name), value)]
    bad = _judged(frame, source).where(F.col(REASON).isNotNull() | F.col(GAP).isNotNull())
    known = F.map_filter(F.create_map(*pairs), lambda _, value: value.isNotNull())
    payload = F.coalesce(f"{RECORD}.payload", F.to_json(GAP).cast("binary")).alias("payload")
    return bad.select(payload, f"{RECORD}.tag", known.alias("headers"))


def _lost() -> "Column":
    from pyspark.sql import functions as F

    words = (F.lit("records "), f"{GAP}.gap_from", F.lit(" to "), f"{GAP}.gap_to")
    return F.concat(*words, F.lit(" are lost: "), F.coalesce(f"{GAP}.gap_reason", F.lit("unknown")))


def _judged(frame: "DataFrame", source: StreamSource) -> "DataFrame":
    """Return the rows with their record and why it is bad."""
    from pyspark.sql import functions as F

    kept = frame.withColumn(RECORD, F.struct(*KEPT)).withColumn(GAP, _gap(frame))
    is_record = F.col(GAP).isNull()
    if source.json is None:
        return kept.withColumn(REASON, F.when(is_record, _unexpected(source)))
    wide = kept.withColumn(PARSED, _parsed(source.json))
    names = [name for name in wide.select(f"{PARSED}.*").columns if name != CORRUPT]
    fields = [F.col(f"{PARSED}.{name}").alias(name) for name in names]
    others = [name for name in kept.columns if name not in (*names, "payload")]
    unread = F.col(PARSED).isNull() | F.col(f"{PARSED}.{CORRUPT}").isNotNull()
    flat = wide.select(*fields, *others, F.when(unread, F.lit(NO_JSON)).alias(REASON))
    why = F.coalesce(REASON, _unexpected(source))
    return flat.withColumn(REASON, F.when(is_record, why))


def _gap(frame: "DataFrame") -> "Column":
    """Return the lost range that a row tells of; only a read that goes on without it has any."""
    from pyspark.sql import functions as F

    if GAPS[0] not in frame.columns:
        return F.lit(None).cast("struct<gap_from: bigint, gap_to: bigint, gap_reason: string>")
    return F.when(F.col(GAPS[0]).isNotNull(), F.struct(*GAPS))


def _unexpected(source: StreamSource) -> "Column":
    from pyspark.sql import functions as F

    if source.expect is None:
        return F.lit(None).cast("string")
    fulfilled = F.coalesce(F.expr(source.expect), F.lit(False))
    return F.when(~fulfilled, F.lit(f"not {source.expect}"))


def _parsed(fields: str) -> "Column":
    from pyspark.sql import functions as F

    text = F.when(F.expr("is_valid_utf8(payload)"), F.col("payload").cast("string"))
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    return F.from_json(text, f"{fields}, {CORRUPT} string", options)


def _or_fail(source: StreamSource) -> "Column":
    from pyspark.sql import functions as F

    place = F.concat(F.col(f"{RECORD}.stream"), F.lit(" "), F.col(f"{RECORD}.seq").cast("string"))
    fix = F.lit(f" (give source {source.name!r} a 'quarantine' stream to go on without it)")
    text = F.concat(F.lit("bad record "), place, F.lit(": "), F.col(REASON), fix)
    failure = F.raise_error(text).cast("boolean")
    return F.when(F.col(REASON).isNull(), F.lit(True)).otherwise(failure)
