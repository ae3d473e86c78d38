"""Positions of a streaming query as Spark stores them."""

import pytest

from millstream.spark.offsets import Position, UnknownOffset, offset_of, positions_of


def test_a_position_survives_the_checkpoint() -> None:
    positions = [Position("ORDERS", 120, 7), Position("LATER", 9, 8, first=4)]
    offset = offset_of(positions)
    assert offset == {
        "v": 1,
        "ORDERS": {"seq": 120, "incarnation": 7},
        "LATER": {"seq": 9, "incarnation": 8, "from": 4},
    }
    assert positions_of(offset) == {"ORDERS": positions[0], "LATER": positions[1]}
    assert positions[1].before().seq == 3


def test_a_position_never_moves_back() -> None:
    assert Position("S", 120, 7).at(150).seq == 150
    assert Position("S", 120, 7).at(100).seq == 120


@pytest.mark.parametrize(
    "offset",
    [
        {},
        {"v": 1, "ORDERS": 5},
        {"v": 1, "ORDERS": {"seq": 1}},
        {"v": 2, "ORDERS": {"seq": 1, "incarnation": 1}},
    ],
)
def test_a_foreign_checkpoint_is_refused(offset: dict[str, object]) -> None:
    with pytest.raises(UnknownOffset, match="checkpoint"):
        positions_of(offset)
