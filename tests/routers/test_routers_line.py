"""Whose turn it is: everyone once a round, nobody twice in a turn, no look at those who rest."""

from dataclasses import dataclass

from millstream.routers.source_routers import SourceRouters


@dataclass(eq=False)
class Member:
    ready: bool = True
    asked: int = 0

    @property
    def is_ready(self) -> bool:
        self.asked += 1
        return self.ready


def line_of(count: int) -> SourceRouters[Member]:
    line: SourceRouters[Member] = SourceRouters()
    line.extend(Member() for _ in range(count))
    return line


def test_nobody_has_a_turn_before_the_source_grew() -> None:
    line = line_of(3)
    assert line.is_idle
    assert line.next(10) == []


def test_all_have_their_turn_in_order_once_the_source_grew() -> None:
    line = line_of(5)
    line.grew()
    assert [line.next(2), line.next(2), line.next(2)] == [line[:2], line[2:4], line[4:]]
    assert line.is_idle


def test_a_turn_asks_only_those_whom_it_takes() -> None:
    line = line_of(1000)
    line.grew()
    line.next(10)
    assert sum(member.asked for member in line) == 10


def test_a_source_that_grows_during_a_round_makes_one_more() -> None:
    line = line_of(3)
    line.grew()
    line.next(1)
    line.grew()
    line.grew()
    assert [line.next(9), line.next(9), line.next(9)] == [line[1:], [*line], []]


def test_who_is_not_ready_leaves_the_line_until_it_comes_again() -> None:
    line = line_of(2)
    line[0].ready = False
    line.grew()
    assert line.next(9) == [line[1]]
    line[0].ready = True
    assert line.next(9) == []
    line.again([line[0]])
    assert line.next(9) == [line[0]]


def test_who_comes_again_twice_has_one_turn() -> None:
    line = line_of(1)
    line.again([line[0], line[0]])
    assert line.next(9) == [line[0]]


def test_a_turn_that_was_cut_short_goes_on_with_the_rest() -> None:
    line = line_of(4)
    line.grew()
    taken = line.next(3)
    line.first(taken[1:])
    assert line.next(9) == line[1:]
