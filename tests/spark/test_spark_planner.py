"""Plans to parts: every sequence once, cut at segments, gaps named."""

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client.streams import ColdFile, PlannedSegment, ReadPlan, Tail
from millstream.spark.options import Access
from millstream.spark.reading.planner import (
    ColdRange,
    FileRange,
    Part,
    ServerRange,
    describe,
    lost,
    newly_lost,
    packed,
    parts,
)


def plan(
    *segments: tuple[int, int],
    last: int,
    first: int = 1,
    gaps: list[tuple[int, int, str]] | None = None,
) -> ReadPlan:
    sealed = [PlannedSegment(f"{a}.data", f"{a}.idx", a, b) for a, b in segments]
    after = max([b for _, b in segments], default=first - 1) + 1
    return ReadPlan("S", 7, first, last, Tail(after, last), sealed, gaps or [])


def test_segments_are_read_from_files_and_the_tail_through_the_server() -> None:
    found = parts(plan((1, 100), (101, 200), last=230), 1, 230, Access.AUTO, 0)
    assert found == [
        FileRange("1.data", "1.idx", 1, 100),
        FileRange("101.data", "101.idx", 101, 200),
        ServerRange(201, 230),
    ]


def test_a_range_is_clipped_at_both_ends() -> None:
    found = parts(plan((1, 100), (101, 200), last=230), 50, 120, Access.FILES, 0)
    assert found == [
        FileRange("1.data", "1.idx", 50, 100),
        FileRange("101.data", "101.idx", 101, 120),
    ]


def test_what_was_trimmed_is_not_asked_for() -> None:
    found = parts(plan((1, 100), last=100, first=40), 1, 100, Access.AUTO, 0)
    assert found == [FileRange("1.data", "1.idx", 40, 100)]


def test_broker_access_never_names_a_file() -> None:
    found = parts(plan((1, 100), last=130), 1, 130, Access.BROKER, 0)
    assert found == [ServerRange(1, 130)]


def test_large_parts_are_cut_at_the_records_allowed() -> None:
    found = parts(plan((1, 5), last=8), 1, 8, Access.AUTO, 3)
    assert found == [
        FileRange("1.data", "1.idx", 1, 3),
        FileRange("1.data", "1.idx", 4, 5),
        ServerRange(6, 8),
    ]


@pytest.mark.parametrize(("low", "high"), [(9, 8), (201, 300), (5, 4)])
def test_a_range_with_nothing_in_it_has_no_parts(low: int, high: int) -> None:
    assert parts(plan((1, 100), last=200), low, high, Access.AUTO, 0) == []


SEGMENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), max_size=5)


@given(SEGMENTS, st.integers(0, 9), st.integers(1, 20), st.integers(0, 40), st.integers(0, 4))
def test_every_sequence_of_the_range_is_in_exactly_one_part(
    shape: list[tuple[int, int]], tail: int, first: int, span: int, size: int
) -> None:
    segments: list[tuple[int, int]] = []
    position = 1
    for hole, length in shape:
        segments.append((position + hole, position + hole + length - 1))
        position += hole + length
    last = position - 1 + tail
    found = parts(plan(*segments, last=last), first, first + span, Access.AUTO, size)
    covered = [s for p in found for s in range(p.from_seq, p.to_seq + 1)]
    assert covered == list(range(first, min(first + span, last) + 1))
    if size:
        assert all(p.to_seq - p.from_seq < size for p in found)


def test_losses_are_clipped_to_the_range_and_harmless_ones_left_out() -> None:
    gaps = [(90, 95, "corruption"), (1, 50, "cap"), (60, 61, "void")]
    assert lost(plan(last=100, gaps=gaps), 40, 92) == ((40, 50, "cap"), (90, 92, "corruption"))
    assert lost(plan(last=100, gaps=gaps), 51, 89) == ()


def test_only_what_was_not_known_before_is_newly_lost() -> None:
    assert newly_lost([(1, 50, "cap")], [(1, 20, "cap")]) == ((21, 50, "cap"),)
    assert newly_lost([(1, 50, "cap")], []) == ((1, 50, "cap"),)
    assert newly_lost([(5, 9, "cap")], [(1, 20, "cap")]) == ()
    assert newly_lost([(1, 9, "ttl")], [(4, 5, "corruption")]) == ((1, 3, "ttl"), (6, 9, "ttl"))


def test_many_losses_are_told_in_few_words() -> None:
    gaps = [(i, i, "corruption") for i in range(7)]
    assert describe(gaps).endswith("4..4 (corruption) and 2 more")
    assert describe([(3, 9, "cap")]) == "3..9 (cap)"


def test_cold_files_are_read_where_they_are_but_for_what_was_deleted() -> None:
    cold = [ColdFile("/cold/1.parquet", 1, 50), ColdFile("/cold/51.parquet", 51, 100)]
    given = msgspec.structs.replace(
        plan((101, 200), last=230), cold=cold, cold_deleted=[(1, 2), (45, 55)]
    )
    found = parts(given, 2, 230, Access.AUTO, 0)
    assert found == [
        ColdRange("/cold/1.parquet", 2, 50, ((2, 2), (45, 50))),
        ColdRange("/cold/51.parquet", 51, 100, ((51, 55),)),
        FileRange("101.data", "101.idx", 101, 200),
        ServerRange(201, 230),
    ]
    assert parts(given, 1, 230, Access.BROKER, 0) == [ServerRange(1, 230)]


def test_cold_files_in_an_object_store_are_left_to_the_server() -> None:
    given = msgspec.structs.replace(plan(last=80), cold=[ColdFile("s3://bucket/1.parquet", 1, 50)])
    assert parts(given, 1, 80, Access.AUTO, 0) == [ServerRange(1, 80)]


def sized(*megabytes: int) -> list[Part]:
    """Neighbouring segments of a thousand records each."""
    return [
        FileRange(f"{n}", "", 1000 * n, 1000 * n + 999, size << 20)
        for n, size in enumerate(megabytes)
    ]


@pytest.mark.parametrize(
    ("megabytes", "cores", "tasks"),
    [
        ((64,) * 8, 2, [4, 4]),  # as many tasks as cores
        ((64,) * 16, 2, [4, 4, 4, 4]),  # but none above 256 MB
        ((1,) * 6, 8, [4, 2]),  # nor one of less than 4 MB
        ((3,), 2, [1]),
        ((), 2, []),
    ],
)
def test_neighbours_are_read_by_one_task(
    megabytes: tuple[int, ...], cores: int, tasks: list[int]
) -> None:
    given = sized(*megabytes)
    found = packed([(part, "S") for part in given], cores)
    assert [len(task) for task in found] == tasks
    assert [part for task in found for part, _ in task] == given


@pytest.mark.parametrize(
    ("megabytes", "cores", "tasks"),
    [
        ((300,), 2, [150, 150]),
        ((64, 64, 64), 2, [96, 96]),
        ((64,) * 8, 16, [32] * 16),
        ((300, 10, 300), 1, [256, 256, 98]),  # none above 256 MB
    ],
)
def test_a_long_segment_is_shared_by_tasks_that_have_as_much_to_do(
    megabytes: tuple[int, ...], cores: int, tasks: list[int]
) -> None:
    given = sized(*megabytes)
    found = packed([(part, "S") for part in given], cores)
    weights = [sum(part.bytes for part, _ in task if isinstance(part, FileRange)) for task in found]
    assert [weight / (1 << 20) for weight in weights] == pytest.approx(tasks, abs=2)
    assert covered(part for task in found for part, _ in task) == covered(given)


def covered(parts: Iterable[Part]) -> list[int]:
    """Every sequence that parts read, in their order."""
    return [
        seq
        for part in parts
        if isinstance(part, FileRange | ServerRange)
        for seq in range(part.from_seq, part.to_seq + 1)
    ]


def test_a_long_tail_is_read_by_two_tasks_and_none_of_it_twice() -> None:
    tasks = packed([(ServerRange(1, 100_000), "S")], 2)
    assert len(tasks) == 2
    assert covered(part for task in tasks for part, _ in task) == list(range(1, 100_001))


def test_cold_files_are_not_cut() -> None:
    given: list[tuple[Part, str]] = [(ColdRange("1.parquet", 1, 2_000_000), "S")]
    assert packed(given, 2) == [given]


def test_small_parts_of_several_streams_are_read_by_one_task() -> None:
    pieces: list[tuple[Part, str]] = [(ServerRange(1, 9), "A"), (ServerRange(5, 6), "B")]
    assert packed(pieces, 2) == [pieces]


def test_a_part_of_a_segment_weighs_its_share() -> None:
    given = plan(last=100)
    segment = PlannedSegment("1.data", "1.idx", 1, 100, 1000)
    found = parts(msgspec.structs.replace(given, segments=[segment]), 51, 100, Access.AUTO, 40)
    assert [part.bytes for part in found if isinstance(part, FileRange)] == [400, 100]


@pytest.mark.parametrize("reason", ["unsynced", "torn", "corruption", "evicted", "restart"])
def test_every_reason_but_the_harmless_ones_is_a_loss(reason: str) -> None:
    found = plan(last=30, gaps=[(5, 9, reason), (12, 13, "void"), (15, 16, "delete")])
    assert lost(found, 1, 30) == ((5, 9, reason),)
