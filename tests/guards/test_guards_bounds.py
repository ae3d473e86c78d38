"""What ``make shape`` counts of our own source stays within bounds; the lists only get shorter."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from shape import Shape, measured
from shape_source import Class

import millstream

SOURCE = Path(millstream.__file__).parents[1]
MOST_NAMES_TWICE = 30
MOST_FILES = 20

# Classes with more than 25 methods.
MANY_METHODS = {
    "queues/leases.py:Leases",
    "store/log/file_log.py:FileLog",
    "store/recovery/rebuild.py:Logs",
    "store/recovery/replay.py:Replay",
    "store/segments/segment.py:Segment",
    "store/store.py:Store",
    "store/wal/commit_queue.py:CommitQueue",
    "store/wal/committer.py:Committer",
    "streams/catalog.py:Catalog",
}

# Classes with more than 15 attributes.
MANY_ATTRIBUTES = {
    "store/log/file_log.py:FileLog",
    "store/recovery/rebuild.py:Logs",
    "store/recovery/replay.py:Replay",
    "store/segments/segment.py:Segment",
    "store/store.py:Store",
    "store/wal/commit_queue.py:CommitQueue",
    "store/wal/committer.py:Committer",
    "store/wal/local_engine.py:LocalEngine",
    "streams/stream.py:Stream",
    "topics/context.py:Topics",
}


@pytest.fixture(scope="module")
def shape() -> Shape:
    return measured(SOURCE)


def within(where: str) -> str:
    """Return a place without its line, which moves."""
    return where.rsplit(":", 1)[0].removeprefix("millstream/")


def named(found: Iterable[Class]) -> set[str]:
    return {f"{within(each.where)}:{each.name}" for each in found}


def test_no_object_gets_behaviour_from_outside(shape: Shape) -> None:
    assert [f"{within(hook.where)} {hook.text}" for hook in shape.hooks] == []


def test_one_page_shows_a_class_but_those_that_are_named(shape: Shape) -> None:
    assert named(shape.many_methods) - MANY_METHODS == set()
    assert named(shape.many_attributes) - MANY_ATTRIBUTES == set()


def test_no_function_is_longer_than_sixty_lines(shape: Shape) -> None:
    assert [name for name, _ in shape.long_functions] == []


def test_few_class_names_occur_twice(shape: Shape) -> None:
    assert len(shape.twice) <= MOST_NAMES_TWICE, shape.twice


def test_no_folder_has_more_files_than_one_looks_through(shape: Shape) -> None:
    assert [pair for pair in shape.folders if pair[1] > MOST_FILES] == []
