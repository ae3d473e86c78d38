"""A wrong pipeline file is refused before Spark starts: file, line, key and fix in one line."""

from pathlib import Path
from typing import Any

import pytest

from millstream.pipelines.file.document import Document, from_yaml, load
from millstream.pipelines.file.parse import parse
from millstream.pipelines.file.spec import (
    JoinStep,
    Mode,
    Schedule,
    SqlStep,
    StreamSink,
    StreamSource,
    TableSink,
    Watermark,
    WindowStep,
)
from millstream.pipelines.problems import PipelineError

WHOLE = """\
name: totals
url: nats://broker:4222
run: {every: 30s}
sources:
  orders:
    stream: ORDERS
    json: {id: bigint, at: timestamp}
    expect: id > 0
    quarantine: {stream: BAD, subject: bad.orders, create: [bad.>]}
    watermark: {column: at, delay: 10m}
  regions:
    parquet: lake/regions
steps:
  - name: minutes
    from: orders
    window: {column: at, size: 1m, slide: 30s}
    by: region
    aggregate: {n: count(*)}
  - name: joined
    join: {left: minutes, right: regions, on: [region], how: left}
  - name: last
    sql: select * from joined
sinks:
  - {from: last, stream: TOTALS, mode: append, subject: 'totals.{region}'}
  - {from: orders, parquet: lake/orders, partition_by: [region]}
"""
SMALL = "sources: {a: {stream: A}}\nsinks:\n  - {from: a, parquet: out}\n"


def parsed(text: str) -> Any:
    return parse(from_yaml(text, "p.yaml", Path("/home/p")))


def refusal(text: str) -> str:
    with pytest.raises(PipelineError) as refused:
        parsed(text)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_file_says_what_is_read_done_and_written() -> None:
    pipeline = parsed(WHOLE)
    orders, regions = pipeline.sources
    assert isinstance(orders, StreamSource)
    assert (orders.streams, orders.json, orders.expect) == (
        "ORDERS",
        "id bigint, at timestamp",
        "id > 0",
    )
    assert orders.watermark == Watermark("at", "10 minutes")
    assert orders.quarantine is not None
    assert (orders.quarantine.stream, orders.quarantine.create) == ("BAD", ("bad.>",))
    assert regions.place == "/home/p/lake/regions"
    window, join, sql = pipeline.steps
    assert isinstance(window, WindowStep)
    assert (window.size, window.slide, window.by) == ("1 minutes", "30 seconds", ("region",))
    assert isinstance(join, JoinStep)
    assert isinstance(sql, SqlStep)
    totals, files = pipeline.sinks
    assert isinstance(totals, StreamSink)
    assert (totals.name, totals.mode) == ("stream-TOTALS", Mode.APPEND)
    assert isinstance(files, TableSink)
    assert (files.name, files.partition_by) == ("parquet-orders", ("region",))
    assert pipeline.schedule == Schedule(every="30 seconds")
    assert (pipeline.name, pipeline.server) == ("totals", {"url": "nats://broker:4222"})
    assert pipeline.streaming


def test_what_the_command_line_says_of_the_server_wins() -> None:
    document = from_yaml(WHOLE, "p.yaml", Path())
    assert parse(document, {"url": "nats://other:1"}).server == {"url": "nats://other:1"}


def test_a_mistake_of_the_command_line_is_not_told_as_one_of_the_file() -> None:
    document = from_yaml(WHOLE, "p.yaml", Path("/home/p"))
    with pytest.raises(PipelineError, match=r"^cannot read /none"):
        parse(document, {"credsFile": "/none"})
    own = WHOLE.replace("run: {every: 30s}", "tlsCa: /none")
    assert refusal(own).startswith("p.yaml:3: tlsCa: cannot read /none")


def test_a_file_without_a_name_is_named_after_itself() -> None:
    assert parsed(SMALL).name == "p"


def test_one_micro_batch_is_bounded_unless_the_file_says_otherwise() -> None:
    (source,) = parsed(SMALL).sources
    assert source.options == {"maxRecordsPerTrigger": "500000"}
    (source,) = parsed(SMALL.replace("A}", "A, options: {maxRecordsPerTrigger: 7}}")).sources
    assert source.options == {"maxRecordsPerTrigger": "7"}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("name: minutes", "name: orders", "p.yaml:14: steps[0].name: 'orders' is taken"),
        (
            "expect: id > 0",
            "expct: id > 0",
            "p.yaml:8: sources.orders.expct: unknown key; did you mean 'expect'?",
        ),
        (
            "delay: 10m",
            "delay: soon",
            "p.yaml:10: sources.orders.watermark.delay: must be a time span",
        ),
        (
            "right: regions",
            "right: region",
            "p.yaml:20: steps[1].join.right: nothing is named 'region'; did you mean 'regions'?",
        ),
        ("how: left}", "how: outer}", "p.yaml:20: steps[1].join.how: must be one of inner"),
        (
            "{from: last,",
            "{from: lost,",
            "p.yaml:24: sinks[0].from: nothing is named 'lost'; did you mean 'last'?",
        ),
        ("mode: append", "mode: upsert", "p.yaml:24: sinks[0].mode: must be one of append"),
        (
            "mode: append",
            "mode: complete",
            "p.yaml:24: sinks[0].mode: complete does not go with this sink over streams",
        ),
        (
            "run: {every: 30s}",
            "run: hourly",
            "p.yaml:3: run: must be once, continuous or {every: 30s}",
        ),
        (
            "run: {every: 30s}",
            "run: {evry: 30s}",
            "p.yaml:3: run.evry: unknown key; did you mean 'every'?",
        ),
        (
            "stream: ORDERS",
            "topics: ORDERS",
            "p.yaml:6: sources.orders.topics: unknown key; did you mean 'topic'?",
        ),
        (
            "json: {id: bigint, at: timestamp}",
            "options: {subjct: a}",
            "unknown option 'subjct'; did you mean 'subject'?",
        ),
        (
            "aggregate: {n: count(*)}",
            "aggregate: {}",
            "p.yaml:14: steps[0]: 'aggregate' is missing",
        ),
        ("name: totals", "name: a/b", "p.yaml:1: name: must be letters"),
        ("name: totals", "name: [a", "p.yaml:2: not valid YAML"),
        ("name: totals", "run: once", "p.yaml:3: run: is there twice"),
        ("sql: select * from joined", "python: steps.py", "p.yaml:21: steps[2]: 'from' is missing"),
        ("url: nats://broker:4222", "patience: long", "option patience must be seconds"),
        ("every: 30s", "every: 0s", "p.yaml:3: run.every: must be more than nothing"),
        ("url: nats://", "url: kafka://", "p.yaml:2: url: option url must begin with nats://"),
        ("name: minutes", "name: Orders", "p.yaml:14: steps[0].name: 'Orders' is taken"),
        (
            "  regions:",
            "  Orders:",
            "p.yaml:11: sources.Orders: 'Orders' and 'orders' are one name in SQL",
        ),
        (
            "quarantine: {stream: BAD,",
            "quarantine: {stream: ORDERS,",
            "p.yaml:9: sources.orders.quarantine: 'ORDERS' is read by this source",
        ),
        (
            "expect: id > 0",
            "options: {endTime: now}",
            "p.yaml:8: sources.orders.options: option endTime belongs to spark.read, not to "
            "spark.readStream: with snapshot: true the source is read so",
        ),
        (
            "parquet: lake/orders, partition_by: [region]",
            "iceberg: orders",
            "p.yaml:25: sinks[1].iceberg: must be namespace.table, not 'orders'",
        ),
        (
            "parquet: lake/orders",
            "jdbc: jdbc:x",
            "p.yaml:25: sinks[1].options: 'dbtable' is missing",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line_and_fix(old: str, new: str, told: str) -> None:
    assert old in WHOLE
    assert told in refusal(WHOLE.replace(old, new, 1))


def test_a_pipeline_reads_and_writes_something() -> None:
    assert "p.yaml:1: sources: names nothing to read" in refusal("name: x")
    assert "sinks: names nothing to write" in refusal("sources: {a: {stream: A}}")
    assert "must be a mapping" in refusal("[]")


def test_tables_alone_cannot_go_on_for_ever_or_be_updated() -> None:
    tables = "sources: {a: {parquet: t}}\nsinks: [{from: a, stream: B}]\n"
    assert not parsed(tables).streaming
    assert "p.yaml:3: run: needs a source that goes on" in refusal(tables + "run: continuous")
    wrong = tables.replace("stream: B", "stream: B, mode: update")
    assert "update does not go with this sink over tables alone: append" in refusal(wrong)


def test_a_quarantine_needs_to_know_what_is_good() -> None:
    assert "say what a good one is" in refusal(SMALL.replace("A}", "A, quarantine: BAD}"))


def test_two_sinks_of_one_name_would_share_a_checkpoint() -> None:
    assert "two sinks would be called 'parquet-out'" in refusal(
        SMALL + "  - {from: a, parquet: other/out}\n"
    )
    assert len(parsed(SMALL + "  - {from: a, parquet: b/out, name: second}\n").sinks) == 2


def test_a_python_file_holds_the_same_as_a_dict_with_functions(tmp_path: Path) -> None:
    file = tmp_path / "p.py"
    file.write_text(
        "def f(spark, a):\n    return a\n"
        "pipeline = {'sources': {'a': {'stream': 'A'}},\n"
        "  'steps': [{'name': 'b', 'from': 'a', 'python': f}],\n"
        "  'sinks': [{'from': 'b', 'parquet': 'out'}]}\n"
    )
    pipeline = parse(load(file))
    assert pipeline.name == "p"
    assert pipeline.steps[0].function.__name__ == "f"  # type: ignore[union-attr]
    assert pipeline.sinks[0].place == str(tmp_path / "out")  # type: ignore[union-attr]


def test_a_yaml_file_names_functions_of_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def f(spark, a):\n    return a\n")
    data = {
        "name": "p",
        "sources": {"a": {"stream": "A"}},
        "steps": [{"name": "b", "from": "a", "python": "steps.py:f"}],
        "sinks": [{"from": "b", "parquet": "out"}],
    }
    assert parse(Document("p", data, tmp_path)).steps[0].name == "b"
    data["steps"][0]["python"] = "steps.py:g"  # type: ignore[index]
    with pytest.raises(PipelineError, match=r"steps\[0\]\.python: .* defines no function 'g'"):
        parse(Document("p", data, tmp_path))


def test_parts_of_a_minute_are_a_time_span_that_spark_takes() -> None:
    assert parsed(WHOLE.replace("every: 30s", "every: 1.5m")).schedule.every == "90000 milliseconds"


def test_bad_records_may_stay_in_a_stream_of_which_other_subjects_are_read() -> None:
    kept = "options: {subject: orders.>}\n    quarantine: {stream: ORDERS,"
    assert parsed(WHOLE.replace("quarantine: {stream: BAD,", kept)).sources


def test_a_file_that_is_no_pipeline_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"none\.yaml: no such file"):
        load(tmp_path / "none.yaml")
    (tmp_path / "p.txt").write_text("")
    with pytest.raises(PipelineError, match=r"is a \.yaml, \.yml or \.py file"):
        load(tmp_path / "p.txt")
    (tmp_path / "p.py").write_text("x = 1")
    with pytest.raises(PipelineError, match="defines no 'pipeline'"):
        load(tmp_path / "p.py")
    (tmp_path / "q.py").write_text("1 / 0")
    with pytest.raises(PipelineError, match=r"q\.py: ZeroDivisionError"):
        load(tmp_path / "q.py")
    (tmp_path / "r.py").write_text("import sys; sys.exit('no')")
    with pytest.raises(PipelineError, match=r"r\.py: SystemExit: no"):
        load(tmp_path / "r.py")
    (tmp_path / "latin.yaml").write_bytes(b"name: a\nrun: \xe9\n")
    with pytest.raises(PipelineError, match=r"latin\.yaml:2: not UTF-8"):
        load(tmp_path / "latin.yaml")


ROLLUP = """\
sources: {a: {stream: A}}
steps:
  - {name: r, from: a, rollup: {size: 30s, value: length(payload)}, by: [tag]}
sinks:
  - {from: r, stream: OUT, mode: update}
"""


def test_a_roll_up_is_a_window_with_counts_rates_and_percentiles() -> None:
    pipeline = parsed(ROLLUP)
    (step,) = pipeline.steps
    assert (step.column, step.size, step.by) == ("ts", "30 seconds", ("tag",))
    assert list(step.aggregates) == [
        *("records", "per_second", "min", "mean", "max", "p50", "p90", "p99")
    ]
    assert step.aggregates["per_second"] == "round(count(*) / 30.0D, 3)"
    assert step.aggregates["p99"] == "percentile_approx(length(payload), 0.99)"
    assert pipeline.sinks[0].mode is Mode.UPDATE
    (plain,) = parsed(
        ROLLUP.replace(", value: length(payload)", "").replace(", by: [tag]", "")
    ).steps
    assert (plain.by, list(plain.aggregates)) == (("stream", "subject"), ["records", "per_second"])


def test_a_roll_up_without_a_size_is_told() -> None:
    assert refusal(ROLLUP.replace("size: 30s, ", "")) == (
        "p.yaml:3: steps[0].rollup: 'size' is missing: how long a window is, such as 1m"
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("agregate: {n: count(*)}", r"agregate: unknown key; did you mean 'aggregate'\?"),
        ("agg: {n: count(*)}", "'aggregate' is missing"),
    ],
)
def test_a_misspelled_key_is_named_before_what_it_leaves_missing(wrong: str, said: str) -> None:
    text = f"""
sources: {{orders: {{stream: ORDERS}}}}
steps:
  - name: by_minute
    from: orders
    window: {{column: ts, size: 1m}}
    {wrong}
sinks: [{{from: by_minute, parquet: out}}]
"""
    with pytest.raises(PipelineError, match=said):
        parse(from_yaml(text, "p.yaml", Path()))


def test_a_misspelled_kind_is_named() -> None:
    text = """
sources: {orders: {stream: ORDERS}}
steps: [{name: all, sqll: select 1}]
sinks: [{from: all, parquet: out}]
"""
    with pytest.raises(PipelineError, match=r"sqll: unknown key; did you mean 'sql'\?"):
        parse(from_yaml(text, "p.yaml", Path()))
