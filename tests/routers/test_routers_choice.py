"""What a step copies, which way records can go, and how far: decided on values alone."""

import pytest

from millstream.routers.choice import Fit, choose, lost_through, next_loss
from millstream.routers.graph import find_cycle, other_source
from millstream.routers.hops import Hops
from millstream.routers.tag_filter import TagFilter
from millstream.store.log.derived import (
    Derivation,
    DerivedPart,
    Fields,
    as_ranges,
    decode,
    encode,
    origin_of,
)
from millstream.store.log.log import Gap


def record(seq: int, tag: bytes = b"") -> Fields:
    return (seq, 0, b"a", b"%d" % seq, b"", tag, b"", b"")


def chosen(seqs: list[int], cursor: int = 0, **more: object) -> object:
    rules = {
        "tags": None,
        "hops_of": lambda seq: 0,
        "is_held": lambda seq: False,
        "fits": lambda record: Fit.YES,
        **more,
    }
    return choose([record(seq) for seq in seqs], cursor, **rules)  # type: ignore[arg-type]


def test_everything_is_copied_where_nothing_speaks_against_it() -> None:
    made = chosen([3, 4, 7], cursor=2)
    assert ([r[0] for r in made.records], made.passed, made.hops) == ([3, 4, 7], 7, 1)


def test_what_the_filter_leaves_out_is_passed() -> None:
    made = chosen([1, 2], tags=TagFilter("Eq", "x"))
    assert (made.records, made.passed) == ([], 2)


def test_a_record_of_eight_hops_goes_no_further() -> None:
    made = chosen([1, 2], hops_of=lambda seq: 8 if seq == 1 else 7)
    assert ([r[0] for r in made.records], made.passed, made.hops) == ([2], 2, 8)


def test_copies_of_one_step_have_the_same_hops() -> None:
    made = chosen([1, 2, 3], hops_of=lambda seq: seq // 3)
    assert ([r[0] for r in made.records], made.passed) == ([1, 2], 2)


def test_a_step_stops_before_what_does_not_fit_now() -> None:
    made = chosen([1, 2, 3], fits=lambda r: Fit.NOT_NOW if r[0] == 2 else Fit.YES)
    assert ([r[0] for r in made.records], made.passed, made.is_blocked) == ([1], 1, True)


def test_what_can_never_fit_is_left_out() -> None:
    made = chosen([1, 2, 3], fits=lambda r: Fit.NEVER if r[0] == 2 else Fit.YES)
    assert ([r[0] for r in made.records], made.passed) == ([1, 3], 3)


def test_what_the_destination_holds_is_counted_and_not_copied_again() -> None:
    made = chosen([1, 2, 3], is_held=lambda seq: seq < 3)
    assert (made.records, made.known, made.passed) == ([], 2, 2)
    made = chosen([1, 2, 3], is_held=lambda seq: seq > 1)
    assert ([r[0] for r in made.records], made.known, made.passed) == ([1], 0, 1)


def test_losses_of_the_source_are_found_by_floor_and_by_gap() -> None:
    gaps = [Gap(5, 6, "void"), Gap(8, 9, "corruption")]
    assert lost_through(3, 4, gaps) == 4
    assert lost_through(4, 4, gaps) == 0
    assert lost_through(7, 4, gaps) == 9
    assert lost_through(8, 4, gaps) == 9
    assert next_loss(3, gaps) == 8
    assert next_loss(9, gaps) is None


@pytest.mark.parametrize(
    ("edges", "cycle"),
    [
        ([], None),
        ([("b", "c")], None),
        ([("b", "a")], ["a", "b", "a"]),
        ([("b", "c"), ("c", "a"), ("c", "d")], ["a", "b", "c", "a"]),
        ([("b", "c"), ("c", "b")], None),
    ],
)
def test_a_cycle_is_named_from_the_new_source_back_to_it(
    edges: list[tuple[str, str]], cycle: list[str] | None
) -> None:
    assert find_cycle(edges, "a", "b") == cycle


def test_a_second_source_is_noticed() -> None:
    assert other_source([("x", "b")], "a", "b")
    assert not other_source([("a", "b"), ("x", "c")], "a", "b")


def test_hops_are_known_until_every_router_has_passed() -> None:
    hops = Hops()
    hops.add(3, 4, 1)
    hops.add(5, 6, 1)
    hops.add(9, 9, 2)
    hops.add(9, 9, 2)
    assert [hops.of(seq) for seq in range(2, 11)] == [0, 1, 1, 1, 1, 0, 0, 2, 0]
    assert len(hops) == 2
    hops.forget_through(8)
    assert hops.items() == [(9, 9, 2)]


def test_a_derivation_is_read_as_it_was_written() -> None:
    part = DerivedPart(1, 9, 2, 7, 5, 0, [(1, 3), (5, 5)], "b", 3, "r")
    assert decode(encode(Derivation(4, 12, "a", [part]))) == Derivation(4, 12, "a", [part])
    assert (part.count, part.last) == (4, 8)


def test_sequences_become_ranges() -> None:
    assert as_ranges([1, 2, 3, 7, 9, 10]) == [(1, 3), (7, 7), (9, 10)]


@pytest.mark.parametrize("meta", [b"", b"[]", b'{"_topics_router":5}', b'"_topics_router"'])
def test_a_meta_without_a_mark_has_no_origin(meta: bytes) -> None:
    assert origin_of(meta, "r", 1) == 0


def test_a_mark_counts_for_its_own_router_and_source_only() -> None:
    meta = b'{"_topics_router":{"router":"r","source_topic_id":1,"source_seq":6}}'
    assert origin_of(meta, "r", 1) == 6
    assert origin_of(meta, "s", 1) == 0
    assert origin_of(meta, "r", 2) == 0
