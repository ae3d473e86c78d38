"""A queue over a store on a fake disk: cancellation, snapshots under way, dead letters."""

import asyncio

import pytest
from queue_bench import QueueBench

from millstream.errors import MillstreamError, ShardReadOnly
from millstream.message import NewRecord, Record
from millstream.queues.dead_letters import copy_of
from millstream.queues.settings import Settings, is_queue, settings_of
from millstream.streams.config.config import StreamConfig
from support.fake_disk import FakeDisk, Mode


async def filled(bench: QueueBench, jobs: int = 3, **config: object) -> None:
    queue = await bench.make(**config)
    await bench.drive(queue.stream.append([NewRecord(b"", b"%d" % n) for n in range(jobs)]))


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_snapshot_taken_while_a_claim_is_being_written_keeps_it_once() -> None:
    disk = FakeDisk()
    bench = QueueBench(disk)
    await filled(bench, durability="fsync", leases_durable=True)
    queue = bench.queue()
    claim = asyncio.ensure_future(queue.claim("a", 2, 60_000))
    await turn()
    assert not claim.done()
    bench.store.checkpoint({"streams": bench.catalog.section(), "queues": bench.queues.section()})
    await bench.drive(_result(claim))
    await bench.drive(queue.nack("a", [1], [None], 0))
    after = QueueBench(disk.after_crash(Mode.DROP, 1), bench.clock)
    leases = after.queue().leases
    assert {seq: lease.lease_id for seq, lease in leases.held.items()} == {2: 2}
    assert leases.deliveries == {1: 1, 2: 1}
    after.close()


async def _result(task: "asyncio.Future[object]") -> object:
    return await task


async def test_a_client_that_leaves_while_its_claim_is_written_leaves_the_jobs() -> None:
    disk = FakeDisk()
    bench = QueueBench(disk)
    await filled(bench, durability="fsync", leases_durable=True)
    claim = asyncio.ensure_future(bench.queue().claim("a", 2, 60_000))
    await turn()
    claim.cancel()
    await turn()
    bench.bench.run()
    assert claim.cancelled()
    assert bench.queue().counters().ready == 3
    after = QueueBench(disk.after_crash(Mode.KEEP, 1), bench.clock)
    assert after.queue().counters().ready == 3
    after.close()


async def test_a_client_that_leaves_during_its_ack_does_not_undo_it() -> None:
    bench = QueueBench(FakeDisk())
    await filled(bench)
    queue = bench.queue()
    await bench.drive(queue.claim("a", 1))
    ack = asyncio.ensure_future(queue.ack("a", [1], [None]))
    await turn()
    assert (queue.counters().ready, queue.counters().in_flight) == (2, 0)
    ack.cancel()
    await bench.drive(bench.queues.finish())
    assert queue.counters().ready == 2
    assert queue.leases.leaving == set()
    assert queue.stream.state().messages == 2
    bench.close()


async def test_counters_stay_right_while_deletions_are_under_way() -> None:
    bench = QueueBench(FakeDisk())
    await filled(bench, 6)
    queue = bench.queue()
    await bench.drive(queue.claim("a", 4))
    acks = [asyncio.ensure_future(queue.ack("a", [seq], [None])) for seq in (1, 2, 3)]
    for _ in range(4):
        counters = queue.counters()
        assert (counters.ready, counters.in_flight) in {(2, 4), (2, 1)}
        await asyncio.sleep(0)
    for ack in acks:
        await bench.drive(_result(ack))
        assert (queue.counters().ready, queue.counters().in_flight) == (2, 1)
    bench.close()


async def test_acks_cost_the_same_however_many_jobs_are_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = QueueBench(FakeDisk())
    await filled(bench, 50)
    queue, looks = bench.queue(), []
    known = queue.leases.known
    monkeypatch.setattr(queue.leases, "known", lambda: looks.append(1) or known())
    await bench.drive(queue.claim("a", 50))
    for seq in range(1, 20):
        await bench.drive(queue.ack("a", [seq], [None]))
    assert len(looks) == 1  # only the first look goes through all that is remembered
    await bench.drive(queue.stream.delete([30]))
    assert queue.counters().in_flight == 30
    assert len(looks) == 2
    bench.close()


async def test_a_look_during_a_removal_by_others_does_not_hide_it_for_good() -> None:
    bench = QueueBench(FakeDisk())
    await filled(bench)
    queue = bench.queue()
    await bench.drive(queue.claim("a", 2))
    removal = asyncio.ensure_future(queue.stream.delete([1]))
    await turn()
    queue.counters()
    await bench.drive(_result(removal))
    counters = queue.counters()
    assert (counters.ready, counters.in_flight) == (1, 1)
    bench.close()


async def test_a_failed_disk_refuses_claims_and_gives_their_jobs_back() -> None:
    disk = FakeDisk()
    bench = QueueBench(disk)
    await filled(bench, durability="fsync", leases_durable=True)
    for call in range(disk.calls + 1, disk.calls + 4):
        disk.failures[call] = OSError(5, "broken")
    with pytest.raises(MillstreamError):
        await bench.drive(bench.queue().claim("a", 2))
    counters = bench.queue().counters()
    assert (counters.ready, counters.in_flight) == (3, 0)
    assert bench.queue().leases.deliveries == {}
    with pytest.raises(ShardReadOnly):
        await bench.drive(bench.queue().claim("a", 2))
    bench.catalog.close()


async def test_only_queues_that_keep_their_leases_write_them_down() -> None:
    disk = FakeDisk()
    bench = QueueBench(disk)
    await filled(bench)
    queue = bench.queue()
    calls = disk.calls
    await bench.drive(queue.claim("a", 2))
    await bench.drive(queue.extend("a", [1], [None], 1000))
    await bench.drive(queue.nack("a", [2], [None], 10))
    assert disk.calls == calls
    bench.close()


async def test_a_recreated_queue_does_not_inherit_leases_from_the_log() -> None:
    disk = FakeDisk()
    bench = QueueBench(disk)
    await filled(bench, leases_durable=True)
    await bench.drive(bench.queue().claim("a", 3))
    await bench.drive(bench.catalog.delete("q"))
    await filled(bench, 1, leases_durable=True)
    after = QueueBench(disk.after_crash(Mode.KEEP, 1), bench.clock)
    counters = after.queue().counters()
    assert (counters.ready, counters.in_flight) == (1, 0)
    after.close()


async def test_turning_durable_leases_off_forgets_them_at_the_next_start() -> None:
    disk = FakeDisk()
    bench = QueueBench(disk)
    await filled(bench, leases_durable=True)
    await bench.drive(bench.queue().claim("a", 3))
    known = bench.catalog.get("q").config
    plain = StreamConfig.from_topic("q", {"type": "queue"}, known)
    await bench.drive(bench.catalog.update(plain))
    after = QueueBench(disk.after_crash(Mode.KEEP, 1), bench.clock)
    assert after.queue().counters().ready == 3
    after.close()


def test_a_dead_letter_keeps_all_of_the_job_and_says_where_it_was() -> None:
    headers = b"NATS/1.0\r\nA: 1\r\n\r\n"
    record = Record(7, 1, b"work.a", b"\xff", headers, b"t", b"n", b'{"big":12345678901234567890}')
    copy = copy_of(record, "q", 3)
    assert (copy.subject, copy.payload, copy.headers) == (b"", b"\xff", headers)
    assert (copy.tag, copy.node) == (b"t", b"n")
    assert copy.meta == (
        b'{"big":12345678901234567890,"$dead_letter_from":"q","$dead_letter_deliveries":"3",'
        b'"$dead_letter_src_seq":"7","$dead_letter_subject":"work.a"}'
    )


@pytest.mark.parametrize("meta", [b"", b"5", b'"x"', b"[1]", b"{broken", b'{"a":"\xff"}'])
def test_a_meta_that_cannot_be_added_to_is_replaced(meta: bytes) -> None:
    copy = copy_of(Record(1, 1, b"q", b"1", meta=meta), "q", 2)
    assert copy.meta == (
        b'{"$dead_letter_from":"q","$dead_letter_deliveries":"2","$dead_letter_src_seq":"1"}'
    )


def test_settings_stay_in_their_ranges_whatever_a_nats_client_wrote() -> None:
    def settings(**metadata: str) -> Settings:
        named = {f"millstream.{key}": value for key, value in metadata.items()}
        return settings_of(StreamConfig(name="q", metadata={"millstream.type": "queue", **named}))

    assert settings() == Settings()
    assert settings(lease_ms="1", claim_jitter_ms="99999").lease_ms == 100
    assert settings(claim_jitter_ms="99999").claim_jitter_ms == 5000
    assert settings(lease_ms='"soon"') == Settings()
    assert settings(max_deliveries="3").most_deliveries == 0
    assert settings(max_deliveries="3", dead_letter='"d"').most_deliveries == 3
    assert not is_queue(StreamConfig(name="q"))
