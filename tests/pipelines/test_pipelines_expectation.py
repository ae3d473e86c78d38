"""Columns that a condition names and nothing has are found before Spark starts."""

import pytest

from millstream.pipelines.file.document import Document
from millstream.pipelines.file.expectation import ddl_names, unknown_columns
from millstream.pipelines.file.parse import parse
from millstream.pipelines.problems import PipelineError

KNOWN = ("id", "amount", "at", "region", "subject")


@pytest.mark.parametrize(
    "condition",
    [
        "amount > 0",
        "AMOUNT > 1e3 and not Region is null or id in (1, 2)",
        "region like 'no_such%' and subject rlike r'no\\w+'",
        'cast(id as string) = "nobody" and length(region) between 1 and 20',
        "at > current_timestamp - interval 7 days and at < timestamp'2026-01-01'",
        "case when amount > 1 then true else false end",
        "region.inner.field is not null and id::bigint > 0",
        "exists(array(1), other -> other > amount)",
        "`odd name` > 1",
    ],
)
def test_what_spark_would_take_is_taken(condition: str) -> None:
    assert unknown_columns(condition, KNOWN) == []


def test_names_that_nothing_has_are_found() -> None:
    assert unknown_columns("amuont > 0 and upper(regoin) = 'x'", KNOWN) == ["amuont", "regoin"]


def test_fields_are_read_from_ddl() -> None:
    assert ddl_names("id bigint, s struct<a: int, b: string>, d decimal(10, 2) not null") == [
        *("id", "s", "d")
    ]
    assert ddl_names("`odd name` int") is None


def test_a_file_with_such_a_condition_is_refused_with_its_place() -> None:
    def source(**more: str) -> dict[str, object]:
        return {
            "sources": {"a": {"stream": "A", **more}},
            "sinks": [{"from": "a", "parquet": "x"}],
        }

    fields = "id bigint, amount double"
    parse(Document("p", source(json=fields, expect="amount > 0 and seq > 1")))
    parse(Document("p", source(expect="length(payload) > 0")))
    with pytest.raises(PipelineError, match=r"sources.a.expect: .*'amuont'; did you mean 'amount'"):
        parse(Document("p", source(json=fields, expect="amuont > 0")))
    with pytest.raises(PipelineError, match="there is no column 'payload'"):
        parse(Document("p", source(json=fields, expect="length(payload) > 0")))
