"""Positions of a streaming query as Spark stores them."""

import pytest

from millstream.spark.offsets import Position, UnknownOffset, position_of


def test_a_position_survives_the_checkpoint() -> None:
    position = Position("ORDERS", 120, 7)
    assert position.as_offset() == {"v": 1, "ORDERS": {"seq": 120, "incarnation": 7}}
    assert position_of(position.as_offset(), "ORDERS") == position


def test_a_position_never_moves_back() -> None:
    assert Position("S", 120, 7).at(150).seq == 150
    assert Position("S", 120, 7).at(100).seq == 120


@pytest.mark.parametrize(
    "offset",
    [
        {},
        {"v": 1},
        {"v": 1, "OTHER": {"seq": 1, "incarnation": 1}},
        {"v": 1, "ORDERS": 5},
        {"v": 1, "ORDERS": {"seq": 1}},
        {"v": 2, "ORDERS": {"seq": 1, "incarnation": 1}},
    ],
)
def test_a_foreign_checkpoint_is_refused(offset: dict[str, object]) -> None:
    with pytest.raises(UnknownOffset, match="checkpoint"):
        position_of(offset, "ORDERS")
