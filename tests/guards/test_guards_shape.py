"""What ``make shape`` counts, on samples of a few lines."""

import ast
from pathlib import Path
from textwrap import dedent

import pytest
from shape import compared, measured, plain
from shape_hooks import hooks
from shape_source import Source, classes, cython_lengths, folders, twice

PARTS = """
from collections.abc import Callable
from dataclasses import dataclass

class Store:
    def __init__(self) -> None:
        self.on_full: Callable[[], None] = print
        self.worker = None
        self.seen = 0
        self.parts = ()
    def hold(self) -> None: ...
    def work(self) -> "Store": return self

@dataclass
class Point:
    x: int = 0
    def moved(self) -> "Point": return self
"""


def source(text: str, path: str = "a.py") -> Source:
    text = dedent(text)
    return Source(path, text, ast.parse(text))


def found(text: str) -> list[str]:
    return [hook.text for hook in hooks([source(PARTS, "parts.py"), source(text)])]


@pytest.mark.parametrize(
    "line",
    [
        "store.on_full = lambda: None",
        "store.on_full = other.hold",
        "store.on_full = partial(print, 1)",
        "store.on_full = helper",
        "store.on_full = given",
        "store.worker = Store()",
        "store.worker = other",
        "store.seen, store.on_full = 1, other.hold",
    ],
)
def test_behaviour_that_is_set_on_another_object_is_a_hook(line: str) -> None:
    text = f"""
    def helper() -> None: ...
    def build(store: Store, other: Store, given: Callable[[], None]) -> None:
        {line}
    """
    assert len(found(text)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "store.seen = 3",
        "store.seen = other.seen",
        "store.parts = others",
        "store.worker = Point()",
        "store.worker = point.moved()",
        "store.strange = other.hold",  # of a class that is not ours
        "store.seen = helper",  # a name of its own, whatever else is called so
        "store.on_full = other.hold  # shape: state",
    ],
)
def test_values_that_are_set_are_no_hooks(line: str) -> None:
    text = f"""
    def helper() -> None: ...
    def note(store: Store, other: Store, others: list[Store], point: Point, helper: int) -> None:
        {line}
    """
    assert found(text) == []


def test_what_is_taken_away_again_is_state() -> None:
    text = """
    def lend(store: Store, other: Store) -> None:
        store.worker = other
    def take(store: Store) -> None:
        store.worker = None
    """
    assert found(text) == []


def test_an_object_that_installs_its_own_method_or_itself_is_found() -> None:
    text = """
    class Door:
        def __init__(self, store: Store) -> None:
            self.on_full = lambda: None
            store.on_full = self.full
            store.worker = self
        def full(self) -> None: ...
    """
    assert found(text) == ["store.on_full = self.full", "store.worker = self"]


def test_a_method_that_only_keeps_behaviour_is_a_hook_and_one_that_works_is_none() -> None:
    text = """
    class Door:
        def bind(self, full: Callable[[], None]) -> None:
            "Say whom to call."
            self._full = full
        def set_size(self, size: int) -> None:
            self._size = size
        def watch(self, full: Callable[[], None]) -> None:
            self._full = full
            full()
    """
    assert found(text) == ["def bind keeps what it is given"]


def test_methods_and_attributes_of_classes_are_counted_but_not_the_fields_of_values() -> None:
    text = """
    class Busy:
        limit: int = 3
        def __init__(self) -> None:
            self.a, self.b = 1, 2
        def more(self) -> None:
            self.a = self.c = 3
    class Value:
        one: int
        two: int
    """
    counted = {c.name: (c.methods, c.attributes) for c in classes(source(text))}
    assert counted == {"Busy": (2, 4), "Value": (0, 0)}


def test_names_that_occur_twice_come_with_their_places() -> None:
    one, two = source("class Host: ...\nclass Door: ..."), source("class Host: ...", "b/c.py")
    assert twice([*classes(one), *classes(two)]) == {"Host": ["a.py:1", "b/c.py:1"]}


def test_folders_count_their_own_files() -> None:
    assert folders(["a/x.py", "a/y.py", "a/b/z.py"]) == {"a": 2, "a/b": 1}


def test_a_compiled_function_ends_where_the_indentation_does() -> None:
    text = """
    cdef int one(int a):
        a += 1

        return a

    cdef class Kept(Other):
        def two(self):
            pass
    """
    assert [size for _, size in cython_lengths("k.pyx", dedent(text))] == [4, 2]


def test_two_trees_are_shown_side_by_side(tmp_path: Path) -> None:
    for name, text in (("one", PARTS), ("two", PARTS.replace("Point", "Store"))):
        (tmp_path / name / "src").mkdir(parents=True)
        (tmp_path / name / "src" / "parts.py").write_text(text)
    before, after = measured(tmp_path / "one/src"), measured(tmp_path / "two/src")
    last = compared(before, after).splitlines()[-1]
    assert last.split() == ["class", "names", "that", "occur", "twice", "0", "1"]
    assert plain(after)["twice"] == {"Store": ["parts.py:5", "parts.py:15"]}
