"""Positions of a streaming query as Spark stores them."""

import pytest

from millstream.spark.offsets import Position, UnknownOffset, offset_of, positions_of


def test_a_position_survives_the_checkpoint() -> None:
    positions = [
        Position("ORDERS", 120, 7),
        Position("LATER", 9, 8, first=4, identity="x7", reader="r1"),
    ]
    offset = offset_of(positions)
    assert offset == {
        "v": 1,
        "ORDERS": {"seq": 120, "incarnation": 7},
        "LATER": {"seq": 9, "incarnation": 8, "identity": "x7", "reader": "r1", "from": 4},
    }
    assert positions_of(offset) == {"ORDERS": positions[0], "LATER": positions[1]}
    assert positions[1].before().seq == 3


def test_a_stream_may_have_the_name_of_the_version() -> None:
    offset = offset_of([Position("v", 3, 7), Position("w", 4, 8)])
    assert offset["v"] == 1
    assert positions_of(offset) == {"v": Position("v", 3, 7), "w": Position("w", 4, 8)}


def test_a_position_belongs_to_one_stream_of_one_server() -> None:
    position = Position("S", 120, 1, identity="x7")
    assert position.is_of(1, "x7")
    assert not position.is_of(1, "y8")
    assert not position.is_of(2, "x7")
    assert Position("S", 120, 1).is_of(1, "x7")  # a checkpoint of an earlier version
    assert position.is_of(1, "")  # a server of an earlier version


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
