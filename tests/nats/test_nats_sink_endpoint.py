"""Staged batches and readers' places, as a client of a running broker meets them."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from xxhash import xxh3_64_hexdigest

from millstream.client.errors import ClientError
from millstream.client.streams import Batch, NatsStreams, ReadRefused, StagedAway, StagedFile
from millstream.kernel._batch import Batch as Entries
from millstream.message import NewRecord
from millstream.streams.deposits import deposits as sinks
from millstream.streams.deposits import staging
from support.small_broker import SmallBroker, small_broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    with small_broker(tmp_path / "data", segment_records=10) as running:
        running.create("OUT", ["out.>"])
        yield running


@pytest.fixture
def streams(broker: SmallBroker) -> Iterator[NatsStreams]:
    client = NatsStreams(broker.url)
    yield client
    client.close()


def entries(*payloads: bytes, subject: bytes = b"out.a", headers: bytes = b"") -> bytes:
    batch = Entries()
    for payload in payloads:
        batch.add(subject, b"", headers, payload)
    return batch.buffer


def stage(streams: NatsStreams, batch: Batch, name: str, data: bytes) -> StagedFile:
    half = len(data) // 2
    streams.stage("OUT", batch, name, 0, data[:half])
    streams.stage("OUT", batch, name, half, data[half:])
    return StagedFile(name, len(data), xxh3_64_hexdigest(data))


def held(broker: SmallBroker) -> list[bytes]:
    frames = broker.do(lambda: broker.stream("OUT").read(1, 1000, 1 << 20))
    return [record[3] for record in frames]


def test_nothing_is_visible_before_the_commit_and_everything_after_it(
    broker: SmallBroker, streams: NatsStreams
) -> None:
    batch = Batch("sink", 0)
    files = [
        stage(streams, batch, "a", entries(b"1", b"2")),
        stage(streams, batch, "b", entries(b"3")),
    ]
    assert held(broker) == []
    done = streams.commit("OUT", batch, files)
    assert (done.records, done.first_seq, done.last_seq, done.duplicate) == (3, 1, 3, False)
    assert held(broker) == [b"1", b"2", b"3"]


def test_a_commit_is_answered_while_files_are_still_written(
    broker: SmallBroker, streams: NatsStreams
) -> None:
    batch, written = Batch("sink", 0), threading.Event()
    files = [stage(streams, batch, "a", entries(b"1"))]
    broker.do(lambda: broker.stream("OUT").watch(lambda: broker.occupy_files(written)))
    try:
        assert streams.commit("OUT", batch, files).records == 1
        assert not written.is_set()
    finally:
        written.set()


def test_a_batch_is_committed_once_however_often_it_is_sent(
    broker: SmallBroker, streams: NatsStreams
) -> None:
    for attempt in ("first", "second"):
        batch = Batch("sink", 4)
        done = streams.commit("OUT", batch, [stage(streams, batch, attempt, entries(b"x"))])
        assert done.duplicate is (attempt == "second")
    older = streams.commit("OUT", Batch("sink", 3), [])
    assert older.duplicate
    other = Batch("another", 4)
    assert not streams.commit("OUT", other, [stage(streams, other, "a", entries(b"y"))]).duplicate
    assert held(broker) == [b"x", b"y"]


def test_a_commit_whose_caller_left_is_known_to_the_one_that_sends_it_again(
    broker: SmallBroker, streams: NatsStreams
) -> None:
    file = stage(streams, Batch("sink", 0), "a", entries(b"x"))
    named = staging.StagedFile(file.id, file.bytes, file.check)
    asked = sinks.CommitRequest("sink", 0, [named])

    async def left_and_sent_again() -> sinks.CommitAnswer:
        stream = broker.stream("OUT")
        first = asyncio.ensure_future(broker.sinks.commit(stream, asked))
        undo = stream.watch(first.cancel)  # the client leaves as its records are committed
        with suppress(asyncio.CancelledError):
            await first
        undo()
        return await broker.sinks.commit(stream, asked)

    assert broker.run(left_and_sent_again()).duplicate
    assert held(broker) == [b"x"]


def test_a_snapshot_at_the_moment_of_a_commit_has_its_note(
    broker: SmallBroker, streams: NatsStreams
) -> None:
    batch = Batch("sink", 4)
    file, sections = stage(streams, batch, "a", entries(b"x")), list[bytes]()
    broker.do(lambda: broker.stream("OUT").watch(lambda: sections.append(broker.sinks.section())))
    streams.commit("OUT", batch, [file])
    assert b'"sink":"sink","batch":4' in sections[0]


def test_a_batch_number_of_another_query_is_refused_and_not_taken_for_a_repetition(
    tmp_path: Path,
) -> None:
    with small_broker(tmp_path / "again") as broker:
        broker.create("OUT", ["out.>"])
        streams = NatsStreams(broker.url)
        old = Batch("copy", 2, query="q1")
        streams.commit("OUT", old, [stage(streams, old, "a", entries(b"x"))])
        streams.close()
    with small_broker(tmp_path / "again") as broker:
        streams = NatsStreams(broker.url)
        assert streams.commit("OUT", old, []).duplicate
        anew = Batch("copy", 0, query="q2")
        file = stage(streams, anew, "a", entries(b"y"))
        with pytest.raises(ReadRefused, match=r"of query q1, and query q2 .* another sinkId"):
            streams.commit("OUT", anew, [file])
        assert held(broker) == [b"x"]
        # Who does not say which query it is, or meets a mark that does not, is taken at its number.
        assert streams.commit("OUT", Batch("copy", 1), []).duplicate
        streams.commit("OUT", Batch("older", 1), [])
        assert streams.commit("OUT", Batch("older", 1, query="q1"), []).duplicate
        streams.close()


def test_the_last_batch_is_known_after_a_restart(tmp_path: Path) -> None:
    for start in range(3):
        with small_broker(tmp_path / "again") as broker:
            if start == 0:
                broker.create("OUT", ["out.>"])
            streams = NatsStreams(broker.url)
            batch = Batch("sink", 7)
            done = streams.commit("OUT", batch, [stage(streams, batch, "a", entries(b"x"))])
            assert done.duplicate is (start > 0)
            assert held(broker) == [b"x"]
            streams.close()


def test_what_was_staged_before_a_restart_can_be_committed_after_it(tmp_path: Path) -> None:
    batch = Batch("sink", 1)
    with small_broker(tmp_path / "again") as broker:
        broker.create("OUT", ["out.>"])
        streams = NatsStreams(broker.url)
        file = stage(streams, batch, "a", entries(b"kept"))
        streams.close()
    with small_broker(tmp_path / "again") as broker:
        streams = NatsStreams(broker.url)
        assert streams.commit("OUT", batch, [file]).records == 1
        assert held(broker) == [b"kept"]
        streams.close()


def test_what_is_not_staged_as_it_was_sent_is_refused(
    broker: SmallBroker, streams: NatsStreams
) -> None:
    batch = Batch("sink", 0)
    file = stage(streams, batch, "a", entries(b"1"))
    wrong = StagedFile("a", file.bytes, "0" * 16)
    with pytest.raises(StagedAway, match="differs from what was sent"):
        streams.commit("OUT", batch, [wrong])
    with pytest.raises(StagedAway, match="not staged here"):
        streams.commit("OUT", batch, [StagedFile("b", 3, "0" * 16)])
    with pytest.raises(StagedAway, match="ends at 0"):
        streams.stage("OUT", batch, "c", 5, b"x")
    streams.abort("OUT", batch)
    with pytest.raises(StagedAway, match="not staged here"):
        streams.commit("OUT", batch, [file])
    assert held(broker) == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (entries(b"x")[:-1], "cut short"),
        (b"\xff" * 64, "do not add up"),
        (entries(b"x", subject=b"other"), "not one that stream OUT takes"),
        (entries(b"x", subject=b"out.*"), "not one that stream OUT takes"),
        (entries(b"x", headers=b"NATS/1.0\r\nA: b"), "the empty line at their end"),
        (entries(b"x" * (1 << 20) + b"y"), "too large"),
    ],
)
def test_entries_that_are_no_records_are_refused(
    broker: SmallBroker, streams: NatsStreams, data: bytes, words: str
) -> None:
    batch = Batch("sink", 0)
    with pytest.raises(ReadRefused, match=words):
        streams.commit("OUT", batch, [stage(streams, batch, "a", data)])
    assert held(broker) == []


def test_names_and_numbers_have_bounds(streams: NatsStreams) -> None:
    for batch, name, words in (
        (Batch("", 0), "a", "name of a sink"),
        (Batch("s" * 201, 0), "a", "name of a sink"),
        (Batch("s", -1), "a", "numbered from 0"),
        (Batch("s", 0), "../a", "letters, digits"),
    ):
        with pytest.raises(ReadRefused, match=words):
            streams.stage("OUT", batch, name, 0, b"x")


def test_staged_records_go_with_their_stream_and_with_time(
    broker: SmallBroker, streams: NatsStreams, tmp_path: Path
) -> None:
    stage(streams, Batch("sink", 0), "a", entries(b"1"))
    staging = broker.sinks._staging
    assert staging.total > 0
    broker.do(staging.sweep)
    assert staging.total > 0
    broker.do(lambda: staging._touched.update(dict.fromkeys(staging._touched, -4000.0)))
    broker.do(staging.sweep)
    assert staging.total == 0
    stage(streams, Batch("sink", 0), "a", entries(b"1"))
    broker.delete_stream("OUT")
    broker.do(lambda: None)
    broker._store.worker.run(lambda: None, lambda error: None)
    with pytest.raises(ClientError, match="no stream named"):
        streams.commit("OUT", Batch("sink", 0), [])


def test_a_reader_is_shown_as_a_consumer_and_holds_what_it_has_not_read(
    broker: SmallBroker, streams: NatsStreams
) -> None:
    broker.append("OUT", [NewRecord(b"out.a", b"%d" % n) for n in range(10)])
    streams.hold("OUT", "spark-query", 4, 60.0)
    (consumer,) = broker.do(lambda: broker.consumers.of(broker.stream("OUT")))
    assert consumer.name == "spark-query"
    assert broker.do(lambda: consumer.ledger.delivered[1]) == 4
    assert broker.do(lambda: consumer.cursor.position) == 5
    stream = broker.stream("OUT")
    config = stream.config
    broker.do(lambda: stream.reconfigure(msgspec.structs.replace(config, max_msgs=2)))
    assert [int(p) for p in held(broker)] == [4, 5, 6, 7, 8, 9]
    streams.hold("OUT", "spark-query", 9, 0.0)
    assert [int(p) for p in held(broker)] == [8, 9]


def test_a_plan_tells_times_and_how_far_bytes_reach(
    broker: SmallBroker, streams: NatsStreams
) -> None:
    for _ in range(30):
        broker.append("OUT", [NewRecord(b"out.a", b"x" * 39)])  # 105 bytes a frame
    frames = broker.do(lambda: broker.stream("OUT").read(11, 1, 1 << 20))
    ts_ns = frames.record(0)[1]
    assert streams.plan("OUT", at_ns=ts_ns).time_seq == 11
    assert streams.plan("OUT", at_ns=ts_ns * 2).time_seq == 31
    assert streams.plan("OUT", 1, max_bytes=1050).until_seq == 10
    assert streams.plan("OUT", 6, max_bytes=1100).until_seq == 15
    assert streams.plan("OUT", 6, max_bytes=1).until_seq == 6
    assert streams.plan("OUT", 6, max_bytes=1 << 30).until_seq == 30


def test_readers_that_share_a_name_do_not_release_what_another_holds(
    broker: SmallBroker, streams: NatsStreams
) -> None:
    broker.append("OUT", [NewRecord(b"out.a", b"%d" % n) for n in range(10)])
    streams.hold("OUT", "pipe", 3, 60.0, reader="slow")
    streams.hold("OUT", "pipe", 9, 60.0, reader="fast")
    (consumer,) = broker.do(lambda: broker.consumers.of(broker.stream("OUT")))
    assert broker.do(lambda: consumer.cursor.position) == 4
    stream = broker.stream("OUT")
    config = stream.config
    broker.do(lambda: stream.reconfigure(msgspec.structs.replace(config, max_msgs=2)))
    assert [int(p) for p in held(broker)] == [3, 4, 5, 6, 7, 8, 9]
    streams.hold("OUT", "pipe", 9, 60.0, reader="slow")
    assert broker.do(lambda: consumer.cursor.position) == 10
