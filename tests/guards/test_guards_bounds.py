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

# Classes with more than 25 methods, each with the reason why it is not split.
MANY_METHODS = {
    "queues/leases.py:Leases": "a pure machine: one method for each thing that happens to a job",
    "store/recovery/rebuild.py:Logs": "one pass over a directory; each step needs what those before"
    " it found of segments, cuts and holes",
    "store/segments/segment.py:Segment": "one file: in memory, being written, sealed, cold; its"
    " index and blocks change together",
    "store/store.py:Store": "the face of a directory: what logs, shards and the server ask of it,"
    " most of it one line that passes the call on",
    "store/wal/commit_queue.py:CommitQueue": "a pure machine: one method for each event, and all of"
    " them decide over the same queue",
    "store/wal/committer.py:Committer": "the shell of that machine: one method for each thing that"
    " the queue can ask for",
    "streams/catalog.py:Catalog": "the changes of streams by name, one method for each",
}

# Classes with more than 15 attributes, likewise.
MANY_ATTRIBUTES = {
    "store/log/file_log.py:FileLog": "the append path: its marks are its own, so that an append is"
    " one call; everything else is a part that it holds",
    "store/recovery/rebuild.py:Logs": "what a start has found so far, gone when it has ended",
    "store/segments/segment.py:Segment": "what is known of one file: how far it is written, synced"
    " and sealed, and where its bytes are",
    "store/store.py:Store": "the parts of a directory, one attribute each",
    "store/wal/commit_queue.py:CommitQueue": "the state of a pure machine: counters and flags that"
    " one rule compares",
    "store/wal/local_engine.py:LocalEngine": "one growing file, the one made ahead of it, and how"
    " far each is written and synced",
    "topics/context.py:Topics": "the parts of the HTTP API, one attribute each: the one value that"
    " every handler gets",
}
MOST_NAMED = 8  # of each


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
    assert named(shape.many_methods) == MANY_METHODS.keys()
    assert named(shape.many_attributes) == MANY_ATTRIBUTES.keys()
    assert max(len(MANY_METHODS), len(MANY_ATTRIBUTES)) <= MOST_NAMED


def test_no_function_is_longer_than_sixty_lines(shape: Shape) -> None:
    assert [name for name, _ in shape.long_functions] == []


def test_few_class_names_occur_twice(shape: Shape) -> None:
    assert len(shape.twice) <= MOST_NAMES_TWICE, shape.twice


def test_no_folder_has_more_files_than_one_looks_through(shape: Shape) -> None:
    assert [pair for pair in shape.folders if pair[1] > MOST_FILES] == []
