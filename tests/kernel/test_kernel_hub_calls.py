"""Calls and sinks that end in a way that nobody expects of them."""

import asyncio
from collections.abc import Callable

import pytest
from hub_recorder import Collector, Recorder

from millstream.kernel._batch import Batch


def cancelled() -> None:
    raise asyncio.CancelledError("in the middle of it")


class Cancelled:
    """A sink in which a cancellation comes up."""

    def deliver(self, batch: Batch) -> None:
        cancelled()


class Deferring:
    """A sink that has its calls made once all sinks of the round are served."""

    def __init__(self, door: Recorder, calls: list[Callable[[], object]]) -> None:
        self._door = door
        self._calls = calls

    def deliver(self, batch: Batch) -> None:
        for call in self._calls:
            assert self._door.hub.defer(call)


def test_a_cancellation_in_a_posted_call_keeps_no_other_from_being_made(
    caplog: pytest.LogCaptureFixture,
) -> None:
    door = Recorder()
    heard: list[int] = []
    door.hub.post(cancelled)
    door.hub.post(lambda: heard.append(1))
    door.hub.poll()
    assert heard == [1]
    assert "in the middle of it" in caplog.text
    assert not door.hub.defer(lambda: None)  # the round is over


def test_a_cancellation_in_a_deferred_call_keeps_no_other_from_being_made(
    caplog: pytest.LogCaptureFixture,
) -> None:
    door = Recorder()
    heard: list[int] = []
    sink = Deferring(door, [cancelled, lambda: heard.append(1)])
    door.interest.add_sink(b"x", sink)
    door.hub.publish(door.interest, b"x", b"", b"", b"")
    door.hub.flush()
    assert heard == [1]
    assert "in the middle of it" in caplog.text
    assert not door.hub.defer(lambda: None)


def test_a_cancellation_in_a_sink_takes_no_messages_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    door = Recorder()
    other = Collector()
    door.interest.add_sink(b"x", Cancelled())
    door.interest.add_sink(b"x", other)
    assert door.hub.publish(door.interest, b"x", b"", b"", b"1") == 2
    door.hub.flush()
    assert [payload for _, _, _, payload, _ in other.messages()] == [b"1"]
    assert "in the middle of it" in caplog.text
    assert not door.hub.defer(lambda: None)
