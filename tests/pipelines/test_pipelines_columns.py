"""A column that there is not is told before Spark starts, with what was meant."""

from pathlib import Path

import pytest

from millstream.pipelines.file.document import from_yaml
from millstream.pipelines.file.parse import parse
from millstream.pipelines.known_columns import check_columns
from millstream.pipelines.problems import PipelineError

WHOLE = """
sources:
  orders: {stream: ORDERS, json: {id: bigint, region: string, amount: double}}
steps:
  - name: by_minute
    from: orders
    window: {column: ts, size: 1m}
    by: [region]
    aggregate: {n: count(*), total: "round(sum(amount), 2)"}
sinks:
  - {from: by_minute, stream: OUT, subject: "out.{region}", mode: update}
  - {from: by_minute, parquet: lake, partition_by: [window_start], mode: complete}
"""


def checked(text: str, *fields: str) -> None:
    check_columns(parse(from_yaml(text, "p.yaml", Path())), lambda _: fields)


def test_what_is_right_passes() -> None:
    checked(WHOLE)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("by: [region]", "by: [regoin]", "step 'by_minute': there is no column 'regoin'; did you"),
        ("column: ts", "column: at", "step 'by_minute': there is no column 'at'"),
        ("sum(amount)", "sum(amout)", r"total' \(round.*no column 'amout'; did you mean 'amount'"),
        ("out.{region}", "out.{area}", "sink 'stream-OUT': there is no column 'area'"),
        ("[window_start]", "[day]", "sink 'parquet-lake': there is no column 'day'"),
    ],
)
def test_what_is_not_there_is_told(old: str, new: str, told: str) -> None:
    assert old in WHOLE
    with pytest.raises(PipelineError, match=told):
        checked(WHOLE.replace(old, new))


def test_a_field_of_the_records_that_the_source_does_not_name_is_told_so() -> None:
    with pytest.raises(PipelineError, match="the JSON of ORDERS has such a field: name it in"):
        checked(WHOLE.replace("by: [region]", "by: [shop]"), "id", "shop")


def test_what_sql_makes_is_left_to_spark() -> None:
    checked(WHOLE.replace("from: orders\n", "from: some\n").replace(
        "steps:\n", "steps:\n  - {name: some, sql: select 1 as x from orders}\n"
    ))  # fmt: skip
