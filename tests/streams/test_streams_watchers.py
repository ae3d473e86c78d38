"""Who looks again after a commit: only those whom it concerns, and never all of many at once."""

import asyncio
import random
from collections.abc import Callable

import pytest

from millstream.streams.reading.watchers import TURN, Watchers
from millstream.subjects.subject import is_pattern, is_subset
from support.waiting import eventually


class Lookers:
    """Watchers that note who looked."""

    def __init__(self) -> None:
        self.watchers = Watchers()
        self.looked: list[object] = []

    def add(self, name: object, *filters: str) -> Callable[[], None]:
        return self.watchers.add(lambda: self.looked.append(name), filters)

    def taken(self) -> list[object]:
        looked, self.looked = self.looked, []
        return looked


def test_a_commit_wakes_those_whose_filters_match() -> None:
    lookers = Lookers()
    lookers.add("all")
    undo = lookers.add("a", "a.*", "b.>")
    lookers.add("b", "b.x")
    lookers.watchers.wake_for([b"a.1", b"b.x"])
    assert lookers.taken() == ["all", "a", "b"]
    lookers.watchers.wake_for([b"b.x.y"])
    assert lookers.taken() == ["all", "a"]
    lookers.watchers.wake()
    assert lookers.taken() == ["all", "a", "b"]
    undo()
    undo()
    lookers.watchers.wake_for([b"b.x.y", b"a.1"])
    assert lookers.taken() == ["all"]


def test_the_tree_finds_what_comparing_each_finds() -> None:
    dice = random.Random(7)
    lookers, known, undone = Lookers(), dict[int, tuple[str, ...]](), 0
    undo = dict[int, Callable[[], None]]()
    for name in range(300):
        drawn = {".".join(dice.choices("ab*>", k=dice.randint(1, 4))) for _ in range(2)}
        filters = tuple(filter(is_pattern, drawn))
        if filters:
            known[name], undo[name] = filters, lookers.add(name, *filters)
        if known and dice.random() < 0.4:
            gone = dice.choice(list(known))
            undo.pop(gone)()
            del known[gone]
            undone += 1
        subject = ".".join(dice.choices("abc", k=dice.randint(1, 4)))
        if known:
            lookers.watchers.wake_for([subject.encode()])
            expected = [n for n, f in known.items() if any(is_subset(subject, p) for p in f)]
            assert sorted(map(str, lookers.taken())) == sorted(map(str, expected))
    assert undone > 50
    for each in undo.values():
        each()
    assert not lookers.watchers.are_filtered


async def test_many_look_in_turns_and_others_come_between() -> None:
    lookers = Lookers()
    for name in range(10 * TURN):
        lookers.add(name)
    seen: list[int] = []

    def between() -> None:
        seen.append(len(lookers.looked))
        if len(lookers.looked) < 10 * TURN:
            asyncio.get_running_loop().call_soon(between)

    between()
    lookers.watchers.wake()
    await eventually(lambda: len(lookers.looked) == 10 * TURN)
    assert lookers.taken() == list(range(10 * TURN))
    assert len(seen) >= 10


async def test_a_change_amid_the_turns_makes_everybody_look_after_it() -> None:
    lookers = Lookers()
    undo = [lookers.add(name) for name in range(3 * TURN)]
    prompt: list[int] = []
    lookers.watchers.add_prompt(lambda: prompt.append(1))
    lookers.watchers.wake()
    first = lookers.taken()
    lookers.watchers.wake()
    assert len(prompt) == 2  # one that must not come late does not
    undo[-1]()
    for _ in range(8):
        await asyncio.sleep(0)
    assert first == list(range(TURN))
    assert sorted(map(int, map(str, lookers.looked))) == list(range(3 * TURN - 1))


def test_one_that_fails_does_so_behind_the_others() -> None:
    lookers = Lookers()

    def fail() -> None:
        raise ValueError("no")

    lookers.watchers.add(fail)
    lookers.add("after")
    with pytest.raises(ValueError, match="no"):
        lookers.watchers.wake()
    assert lookers.looked == ["after"]
