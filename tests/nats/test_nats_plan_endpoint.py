"""Read plans and ranges as a client gets them from a running broker."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from millstream.client import connect
from millstream.client.streams import NatsStreams, ReadRefused, StreamMissing
from millstream.kernel._frames import scan
from millstream.message import NewRecord
from millstream.streams.reading import read_plan
from support.small_broker import SmallBroker, small_broker

PAYLOAD = b"x" * 100


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    with small_broker(tmp_path / "data", segment_records=10) as running:
        running.create("ORDERS", ["orders.>"])
        yield running


@pytest.fixture
def streams(broker: SmallBroker) -> Iterator[NatsStreams]:
    client = NatsStreams(broker.url)
    yield client
    client.close()


def fill(broker: SmallBroker, count: int) -> None:
    """Append one by one, so that segments end exactly where they should."""
    for _ in range(count):
        broker.append("ORDERS", [NewRecord(b"orders.eu", PAYLOAD)])


def seqs(frames: bytes) -> list[int]:
    found, damaged = scan(frames)
    assert damaged == []
    return [frame[3] for frame in found]


def test_an_empty_stream_has_an_empty_plan(broker: SmallBroker, streams: NatsStreams) -> None:
    plan = streams.plan("ORDERS")
    assert (plan.stream, plan.first_seq, plan.last_seq, plan.segments) == ("ORDERS", 1, 0, [])
    assert (plan.tail.from_seq, plan.tail.to_seq) == (1, 0)
    assert streams.read("ORDERS", 1, 100) == b""


def test_a_plan_names_sealed_files_and_the_tail(broker: SmallBroker, streams: NatsStreams) -> None:
    fill(broker, 25)
    broker.seal("ORDERS", 2)
    plan = streams.plan("ORDERS")
    assert [(s.base_seq, s.last_seq) for s in plan.segments] == [(1, 10), (11, 20)]
    assert all(Path(s.path).stat().st_size == s.bytes for s in plan.segments)
    assert all(Path(s.idx_path).is_file() for s in plan.segments)
    assert (plan.first_seq, plan.last_seq) == (1, 25)
    assert (plan.tail.from_seq, plan.tail.to_seq) == (21, 25)
    assert plan.incarnation == broker.stream("ORDERS").incarnation


def test_the_pages_of_a_plan_hold_every_segment_once(
    broker: SmallBroker, streams: NatsStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, 45)
    broker.seal("ORDERS", 4)
    monkeypatch.setattr(read_plan, "MAX_SEGMENTS", 3)
    assert [s.base_seq for s in streams.plan("ORDERS").segments] == [1, 11, 21, 31]
    assert [s.base_seq for s in streams.plan("ORDERS", 25).segments] == [21, 31]


def test_a_trimmed_range_is_a_gap_and_its_segments_are_gone(
    broker: SmallBroker, streams: NatsStreams
) -> None:
    fill(broker, 25)
    broker.seal("ORDERS", 2)
    broker.trim("ORDERS", 15, "cap")
    plan = streams.plan("ORDERS")
    assert (plan.first_seq, [s.base_seq for s in plan.segments]) == (15, [11])
    assert plan.gaps == [(1, 14, "retention")]


def test_a_range_is_exact_whether_sealed_or_not(broker: SmallBroker, streams: NatsStreams) -> None:
    fill(broker, 25)
    broker.seal("ORDERS", 2)
    assert seqs(streams.read("ORDERS", 18, 23)) == [18, 19, 20, 21, 22, 23]
    assert seqs(streams.read("ORDERS", 24, 99)) == [24, 25]
    assert streams.read("ORDERS", 26, 99) == b""
    assert streams.read("ORDERS", 9, 8) == b""


def test_deleted_records_are_left_out_of_a_range(broker: SmallBroker, streams: NatsStreams) -> None:
    fill(broker, 6)
    assert broker.delete("ORDERS", [2, 5]) == 2
    assert seqs(streams.read("ORDERS", 1, 6)) == [1, 3, 4, 6]


def test_an_answer_keeps_to_the_bytes_asked_for(broker: SmallBroker, streams: NatsStreams) -> None:
    fill(broker, 6)
    frame = 52 + len(b"orders.eu") + len(PAYLOAD) + 9
    assert seqs(streams.read("ORDERS", 1, 6, 2 * frame + 5)) == [1, 2]
    assert seqs(streams.read("ORDERS", 1, 6, 1)) == [1]  # one at least, or nobody gets on


def test_a_range_never_outgrows_a_message(broker: SmallBroker, streams: NatsStreams) -> None:
    records = [NewRecord(b"orders.eu", b"y" * 100_000) for _ in range(20)]
    broker.append("ORDERS", records)
    answer = streams.read("ORDERS", 1, 20, 1 << 30)
    assert len(answer) <= 1 << 20
    assert seqs(answer) == list(range(1, 11))


def test_a_missing_stream_is_answered_with_the_closest_name(
    broker: SmallBroker, streams: NatsStreams
) -> None:
    with pytest.raises(StreamMissing, match="did you mean 'ORDERS'"):
        streams.plan("ORDER")
    with pytest.raises(StreamMissing):
        streams.read("ORDER", 1, 2)


def test_a_request_that_makes_no_sense_is_refused_with_a_reason(
    broker: SmallBroker, streams: NatsStreams
) -> None:
    with pytest.raises(ReadRefused, match="start at 1"):
        streams.read("ORDERS", 0, 5)
    with connect(broker.url) as client:
        answer = client.request("$MILLSTREAM.API.READ.ORDERS", b"{}").payload
    told = msgspec.json.decode(answer)["error"]
    assert (told["code"], told["err_code"]) == (400, 10003)
    assert "from_seq" in told["description"]
