"""One stream or consumer more costs the same, however many there are."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streams_fakes import World

from millstream.errors import StreamNotFound
from millstream.streams.catalog import Catalog
from millstream.streams.config.config import StreamConfig
from millstream.streams.name_list import NameList
from millstream.streams.stream import Stream
from millstream.subjects.pattern_set import PatternSet
from millstream.subjects.subject import overlap


class _Compared(str):
    """A name that counts how often it is compared."""

    count = 0

    def __lt__(self, other: str) -> bool:
        _Compared.count += 1
        return str.__lt__(self, other)


class _NeverWalked(dict[tuple[str, str], Stream]):
    """Streams that are found by name; going through all of them fails while it is closed."""

    is_closed = False

    def values(self):  # type: ignore[no-untyped-def]
        assert not self.is_closed, "somebody went through all streams"
        return super().values()

    def items(self):  # type: ignore[no-untyped-def]
        assert not self.is_closed, "somebody went through all streams"
        return super().items()

    def __iter__(self):  # type: ignore[no-untyped-def]
        assert not self.is_closed, "somebody went through all streams"
        return super().__iter__()


def _comparisons(size: int) -> int:
    names = NameList()
    for at in random.Random(7).sample(range(size), size):
        names.add(_Compared(f"n{at}"))
    names.page(0, 1)
    _Compared.count = 0
    for at in range(50):
        names.add(_Compared(f"m{at}"))
        names.page(size // 2, 100)
        next(names.after(_Compared(f"n{at}")), None)
        names.remove(_Compared(f"m{at}"))
    return _Compared.count


def test_a_name_more_is_compared_with_few_others() -> None:
    assert _comparisons(100_000) < 2 * _comparisons(1000)


def test_streams_come_and_go_without_a_look_at_all_others() -> None:
    world, streams = World(), _NeverWalked()
    catalog = Catalog(world.store, world.clock, world.timers, streams=streams)  # type: ignore[arg-type]

    async def run() -> None:
        for at in range(600):
            await catalog.create(StreamConfig(name=f"old{at}", subjects=(f"old.{at}",)))
        streams.is_closed = True
        for at in range(5):
            config = StreamConfig(name=f"new{at}", subjects=(f"new.{at}",), max_bytes=100)
            await catalog.create(config)
            await catalog.update(StreamConfig(name=f"new{at}", subjects=(f"new.{at}",)))
        assert [s.name for s in catalog.table.page("$G", 0, 2)] == ["new0", "new1"]
        assert next(catalog.table.after("$G", "new4")).name == "old0"
        assert [s.name for s in catalog.table.capturing("$G", "old.77")] == ["old77"]
        for at in range(5):
            await catalog.delete(f"new{at}")
        with pytest.raises(StreamNotFound) as raised:
            catalog.get("odl599")
        assert raised.value.detail == {"topic": "odl599", "did_you_mean": "old599"}
        assert catalog.table.count("$G") == 600
        assert catalog.table.promised.of("$G", "file") == 0

    asyncio.run(run())


@given(st.lists(st.tuples(st.booleans(), st.text("ab.", max_size=3)), max_size=40))
def test_names_are_those_of_a_sorted_set(changes: list[tuple[bool, str]]) -> None:
    names, model = NameList(), set[str]()
    for is_new, name in changes:
        if is_new and name not in model:
            names.add(name)
            model.add(name)
        elif not is_new and name in model:
            names.remove(name)
            model.remove(name)
        assert len(names) == len(model)
    assert names.page(0, 100) == sorted(model)
    for after in (None, "", "a", "b."):
        for prefix in ("", "a", "a."):
            left = [
                n for n in sorted(model) if n.startswith(prefix) and (after is None or n > after)
            ]
            assert list(names.after(after, prefix)) == left


def test_names_may_change_while_somebody_goes_through_them() -> None:
    names = NameList()
    for name in ("a", "c", "e"):
        names.add(name)
    seen = []
    for name in names.after(None):
        seen.append(name)
        if name == "c":
            names.remove("a")
            names.remove("c")
            names.add("d")
            names.add("b")
    assert seen == ["a", "c", "d", "e"]


_PATTERN = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3).map(".".join)


@given(st.lists(_PATTERN | _PATTERN.map(lambda p: p + ".>"), max_size=6), _PATTERN)
def test_owners_are_those_whose_patterns_overlap(patterns: list[str], sought: str) -> None:
    known = PatternSet()
    for owner, pattern in enumerate(patterns):
        known.put(owner, (pattern,))
    expected = {owner for owner, pattern in enumerate(patterns) if overlap(pattern, sought)}
    assert known.overlapping(sought) == expected
    for owner in range(len(patterns)):
        known.drop(owner)
    assert known.overlapping(sought) == set()


def test_a_close_name_is_found_among_many() -> None:
    names = NameList()
    for at in range(10_000):
        names.add(f"tenant-{at}")
    assert "tenant-512" in names.near("xtenant-512")
    assert "tenant-512" in names.near("tneant-512")
    assert "tenant-512" in names.near("tenant512")
    assert len(names.near("tenant-51x")) < 300
