"""What ``make shape`` counts of our own source stays within bounds, and what is named only goes."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from shape import Shape, measured
from shape_source import Class

import millstream

SOURCE = Path(millstream.__file__).parents[1]
MOST_HOOKS = 34
MOST_NAMES_TWICE = 30
MOST_FILES = 20

# Behaviour that is still set from outside after construction. Remove a line once it is gone.
HOOKS = {
    "consumers/consumer.py self.feed.gave_up = self._gave_up",
    "consumers/consumer.py self.feed.woken = self.pump",
    "consumers/registry.py consumer.outlet.is_awaited = partial(self._is_awaited, stream.account)",
    "consumers/registry.py stream.removals.on_drop = soon",
    "consumers/registry.py stream.removals.rolled_up = partial(self.purged, stream)",
    "consumers/registry.py stream.removals.tell = tell",
    "server/build.py store.on_pressure = catalog.hold_publishers",
    "server/build.py store.soon = lambda call: hub.defer(call) or loop.call_soon(call)",
    "server/build.py topics.readers = readers",
    "server/build.py topics.sinks = sinks",
    "store/cold/tier.py segment.cold = copy",
    "store/shards.py committer.on_failed = lambda error: self.on_failed(shard, error)",
    "store/shards.py committer.on_pressure = partial(self._pressed, shard.number)",
    "store/shards.py committer.on_synced = lambda position: self.on_synced(shard, position)",
    "store/shards.py committer.soon = self.soon",
    "store/shards.py shard.committer = self._make_committer(shard, epoch, nonce)",
    "store/shards.py shard.committer.marks = self._make_marks(shard.number, found, logs)",
    "store/store.py self.shards.on_failed = self._failed",
    "store/store.py self.shards.on_pressure = lambda pressed: self.on_pressure(pressed)",
    "store/store.py self.shards.on_synced = self._synced",
    "store/store.py self.shards.soon = lambda call: self.soon(call)",
    "streams/publishing/fast_ingest.py run.done = partial(self._settled, run, [one])",
    "streams/publishing/fast_ingest.py run.done = partial(self._settled, run, waiting)",
    "streams/publishing/scheduling.py run.done = partial(self._settled, subject, seq)",
    "streams/sourcing/adoption.py run.done = done",
    "streams/sourcing/intake.py self._deliveries.came = self.pump",
    "streams/stream.py run.done = _heard",
    "streams/stream.py run.done = done",
    "streams/stream.py self._admission.abandoned = hears",
    "streams/stream.py self._admission.server_is_full = server_is_full",
    "topics/context.py store.soon = self._haste.soon",
    "topics/watch/events.py heard.seat.push = push",
    "topics/watch/subscriptions.py each.stream = stream",
}

# Classes with more than 25 methods.
MANY_METHODS = {
    "consumers/consumer.py:Consumer",
    "consumers/cursor.py:Cursor",
    "consumers/ledger.py:Ledger",
    "consumers/pulls.py:PullDesk",
    "consumers/registry.py:Registry",
    "http/connection.py:HttpConnection",
    "http/http2.py:Http2Connection",
    "queues/leases.py:Leases",
    "queues/queue.py:Queue",
    "routers/registry.py:Routers",
    "store/cold/tier.py:ColdTier",
    "store/log/file_log.py:FileLog",
    "store/recovery/rebuild.py:Logs",
    "store/recovery/replay.py:Replay",
    "store/segments/segment.py:Segment",
    "store/store.py:Store",
    "store/wal/committer.py:Committer",
    "streams/catalog.py:Catalog",
    "streams/publishing/admission.py:Admission",
    "streams/reading/subject_index.py:SubjectIndex",
    "streams/retention/removal.py:Removal",
    "streams/stream.py:Stream",
    "streams/writing/writes.py:Writes",
    "topics/context.py:Topics",
    "topics/watch/socket.py:Socket",
}

# Classes with more than 15 attributes.
MANY_ATTRIBUTES = {
    "client/blocking.py:Client",
    "consumers/consumer.py:Consumer",
    "consumers/feed.py:Feed",
    "delivery/scheduler.py:Scheduler",
    "http/connection.py:HttpConnection",
    "queues/queue.py:Queue",
    "store/cold/tier.py:ColdTier",
    "store/log/file_log.py:FileLog",
    "store/recovery/rebuild.py:Logs",
    "store/recovery/replay.py:Replay",
    "store/segments/segment.py:Segment",
    "store/store.py:Store",
    "store/wal/committer.py:Committer",
    "store/wal/local_engine.py:LocalEngine",
    "streams/catalog.py:Catalog",
    "streams/sourcing/deliveries.py:Deliveries",
    "streams/sourcing/intake.py:Intake",
    "streams/stream.py:Stream",
    "streams/writing/run.py:Run",
    "streams/writing/writes.py:Writes",
    "topics/context.py:Topics",
    "topics/watch/socket.py:Socket",
}


@pytest.fixture(scope="module")
def shape() -> Shape:
    return measured(SOURCE)


def within(where: str) -> str:
    """Return a place without its line, which moves."""
    return where.rsplit(":", 1)[0].removeprefix("millstream/")


def named(found: Iterable[Class]) -> set[str]:
    return {f"{within(each.where)}:{each.name}" for each in found}


def test_no_object_gets_behaviour_from_outside_but_those_that_are_named(shape: Shape) -> None:
    found = {f"{within(hook.where)} {hook.text}" for hook in shape.hooks}
    assert found - HOOKS == set()
    assert len(shape.hooks) <= MOST_HOOKS


def test_one_page_shows_a_class_but_those_that_are_named(shape: Shape) -> None:
    assert named(shape.many_methods) - MANY_METHODS == set()
    assert named(shape.many_attributes) - MANY_ATTRIBUTES == set()


def test_no_function_is_longer_than_sixty_lines(shape: Shape) -> None:
    assert [name for name, _ in shape.long_functions] == []


def test_few_class_names_occur_twice(shape: Shape) -> None:
    assert len(shape.twice) <= MOST_NAMES_TWICE, shape.twice


def test_no_folder_has_more_files_than_one_looks_through(shape: Shape) -> None:
    assert [pair for pair in shape.folders if pair[1] > MOST_FILES] == []
