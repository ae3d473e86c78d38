"""JSON of Arrow columns: the type says what a value is."""

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")

from millstream.spark.columns import VARIANT_TYPE  # noqa: E402
from millstream.spark.writing.json_values import ENCODER, plain_values  # noqa: E402

TEXTS = pa.struct([("b", pa.binary()), ("t", pa.string())])
PAIRS = pa.list_(pa.struct([("value", pa.int64()), ("metadata", pa.int64())]))


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([Decimal("1.50"), None], pa.decimal128(10, 2), b"[1.50,null]"),
        ([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64()), b'[{"a":1},{},null]'),
        ([[(True, [])]], pa.map_(pa.bool_(), pa.map_(pa.int8(), pa.int8())), b'[{"true":{}}]'),
        ([[(date(2026, 1, 2), 1)]], pa.map_(pa.date32(), pa.int8()), b'[{"2026-01-02":1}]'),
        ([[[], [("k", 1)]]], pa.list_(pa.map_(pa.string(), pa.int8())), b'[[{},{"k":1}]]'),
        ([{"m": [], "n": 1}], pa.struct([("m", PAIRS), ("n", pa.int8())]), b'[{"m":[],"n":1}]'),
        ([[{"value": 1, "metadata": 2}]], PAIRS, b'[[{"value":1,"metadata":2}]]'),
        ([{"b": b"ab", "t": "x"}], TEXTS, b'[{"b":"YWI=","t":"x"}]'),
    ],
)
def test_values_are_written_as_their_type_says(
    values: list[Any], kind: Any, expected: bytes
) -> None:
    assert ENCODER.encode(plain_values(pa.array(values, kind))) == expected


def test_a_variant_is_the_json_that_it_holds() -> None:
    types = pytest.importorskip("pyspark.sql.types", reason="needs pyspark")
    text = '{"k":[1,2.5,"x",null,{}]}'
    held = types.VariantVal.parseJson(text)
    stored = {"value": held.value, "metadata": held.metadata}
    array = pa.array([{"v": stored}, {"v": None}], pa.struct([("v", VARIANT_TYPE)]))
    assert ENCODER.encode(plain_values(array)) == f'[{{"v":{text}}},{{"v":null}}]'.encode()
