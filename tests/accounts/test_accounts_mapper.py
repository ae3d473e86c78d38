"""Which way a message goes where several are open."""

from collections import Counter
from itertools import cycle

import pytest

from millstream.accounts.account import Destination, Mapping
from millstream.accounts.mapper import Mapper
from millstream.subjects.transform import BadTransform


def every_throw(*mappings: Mapping) -> Mapper:
    throws = cycle(range(100))
    return Mapper(mappings, dice=lambda _: next(throws))


def weighted(source: str, *shares: tuple[str, int]) -> Mapping:
    return Mapping(source, tuple(Destination(subject, weight) for subject, weight in shares))


def test_each_destination_gets_its_share() -> None:
    mapper = every_throw(weighted("a", ("b", 20), ("c", 80)))
    assert Counter(mapper(b"a") for _ in range(100)) == {b"b": 20, b"c": 80}


def test_what_is_left_over_keeps_its_subject() -> None:
    mapper = every_throw(weighted("a.*", ("b.$1", 30)))
    assert Counter(mapper(b"a.x") for _ in range(100)) == {b"b.x": 30, b"a.x": 70}


def test_what_is_left_over_is_lost_where_the_source_has_a_share_of_its_own() -> None:
    mapper = every_throw(weighted("a", ("b", 30), ("a", 50)))
    assert Counter(mapper(b"a") for _ in range(100)) == {b"b": 30, b"a": 50, b"": 20}


def test_a_lot_is_drawn_anew_for_every_message() -> None:
    mapper = Mapper([Mapping("a", (Destination("b.{{random(1000)}}"),))])
    assert len({mapper(b"a") for _ in range(50)}) > 1


def test_the_first_mapping_that_fits_wins() -> None:
    mapper = Mapper([weighted("a.*", ("b.$1", 100)), weighted("a.x", ("c", 100))])
    assert mapper(b"a.x") == b"b.x"


def test_bytes_that_are_no_text_come_through_a_mapping() -> None:
    assert Mapper([weighted("a.*", ("b.$1", 100))])(b"a.\xff\xfe") == b"b.\xff\xfe"


def test_what_is_remembered_is_bounded() -> None:
    mapper = Mapper([weighted("a.*", ("b.$1", 100))])
    for number in range(5000):
        assert mapper(b"a.%d" % number) == b"b.%d" % number
    assert len(mapper._settled) <= 1024


def test_a_destination_that_asks_for_a_wildcard_too_many_is_refused() -> None:
    with pytest.raises(BadTransform):
        Mapper([weighted("a.*", ("b.$2", 100))])
