"""Fast batches as a state machine: limits, and ends that take long to come by themselves."""

import pytest

from millstream.streams.publishing.fast_batch import FastBatches, read
from millstream.streams.writing.batch_limits import BatchLimits
from millstream.streams.writing.preconditions import PublishRefused

SECOND = 10**9


def reply(batch: str, seq: int, op: int, flow: int = 10) -> bytes:
    return f"inbox.{batch}.{flow}.fail.{seq}.{op}.$FI".encode()


class Bench:
    """Batches of one stream, and what they answered."""

    def __init__(self, limits: BatchLimits | None = None) -> None:
        self.answers: list[bytes] = []
        self.batches = FastBatches("S", limits or BatchLimits(), self._note)

    def _note(self, _reply: bytes, body: bytes) -> None:
        self.answers.append(body)

    def send(self, batch: str, seq: int, op: int, now: int = 0) -> bool:
        subject = reply(batch, seq, op)
        return self.batches.arrived(read(subject), subject, now)


def test_a_batch_nobody_goes_on_with_is_forgotten_without_a_word():
    bench = Bench()
    assert bench.send("a", 1, 0)
    assert bench.send("a", 2, 1, 5 * SECOND)
    assert bench.batches.idle_at == 15 * SECOND
    bench.batches.expire(14 * SECOND)
    assert len(bench.batches) == 1
    bench.batches.expire(15 * SECOND)
    assert bench.answers == [b'{"type":"ack","seq":0,"msgs":10}']
    with pytest.raises(PublishRefused) as refused:
        bench.send("a", 3, 1)
    assert refused.value.err_code == 10208


def test_open_batches_are_bounded_per_stream_and_over_all_streams():
    limits = BatchLimits.of(per_stream=2, in_total=3)
    one, other = Bench(limits), Bench(limits)
    assert [one.send("a", 1, 0), one.send("b", 1, 0), other.send("a", 1, 0)] == [True] * 3
    for bench, batch in ((one, "c"), (other, "b")):
        with pytest.raises(PublishRefused) as refused:
            bench.send(batch, 1, 0)
        assert (refused.value.status, refused.value.err_code) == (429, 10211)
    one.batches.clear()
    assert other.send("b", 1, 0)


def test_the_end_is_told_once_everything_before_it_is_stored():
    bench = Bench()
    subjects = [reply("a", seq, op) for seq, op in ((1, 0), (2, 1), (3, 2))]
    for subject in subjects:
        assert bench.batches.arrived(read(subject), subject, 0)
        bench.batches.accepted(read(subject))
    for at, subject in enumerate(subjects):
        assert not bench.answers[1:]
        bench.batches.stored(read(subject), subject, 7 + at)
    assert bench.answers[1:] == [b'{"stream":"S","seq":9,"batch":"a","count":3}']
    assert len(bench.batches) == 0
