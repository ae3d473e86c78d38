"""Topics in memory alone: records go with the process, sequences do not come again."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from topics_api import Api

from millstream.kernel._batch import Batch
from millstream.store.log.memory_log import MemoryLog
from millstream.streams.catalog import SECTION
from millstream.streams.ephemeral_heads import AHEAD

CONFIG = {"durability": "ephemeral", "cap_records": 1000}


async def _written(directory: Path, count: int) -> Api:
    api = Api(directory)
    await api.call("PUT", "/v0/topics/t", CONFIG)
    await api.write("t", *range(count))
    return api


def _stop(api: Api, *, orderly: bool) -> None:
    if orderly:
        api.catalog.settle_heads()
    sections = {SECTION: api.catalog.section()} if orderly else None
    api.timers.close()
    api.store.close(sections)


async def _described(api: Api) -> Any:
    found = (await api.call("GET", "/v0/topics/t"))[1]
    return [found[key] for key in ("head_seq", "earliest_seq", "next_seq", "count")]


async def test_after_an_orderly_stop_the_head_stays_and_the_records_are_reported(
    tmp_path: Path,
) -> None:
    _stop(await _written(tmp_path, 5), orderly=True)
    api = Api(tmp_path)
    assert await _described(api) == [5, 6, 6, 0]
    page = await api.diff("t", from_seq=2)
    assert page["tombstone"]["reason"] == "restart"
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (3, 5)
    assert (await api.write("t", "next"))["first_seq"] == 6
    assert (await api.diff("t", from_seq=5))["tombstone"] is None
    config = (await api.call("GET", "/v0/topics/t"))[1]["config"]
    assert (config["durability"], config["cap_records"]) == ("ephemeral", 1000)
    _stop(api, orderly=True)
    again = Api(tmp_path)
    assert await _described(again) == [6, 7, 7, 0]
    lost = (await again.diff("t", from_seq=0))["tombstone"]
    assert (lost["gap_from"], lost["gap_to"], lost["reason"]) == (1, 6, "restart")
    _stop(again, orderly=True)


async def test_an_empty_topic_has_lost_nothing(tmp_path: Path) -> None:
    api = await _written(tmp_path, 3)
    await api.call("POST", "/v0/topics/t/delete", {"before_seq": 4})
    _stop(api, orderly=True)
    again = Api(tmp_path)
    assert await _described(again) == [3, 4, 4, 0]
    assert (await again.diff("t", from_seq=3))["tombstone"] is None
    _stop(again, orderly=True)


@pytest.mark.parametrize("count", [1, 3, 20_000])
async def test_after_a_crash_no_sequence_is_given_out_again(tmp_path: Path, count: int) -> None:
    api = Api(tmp_path)
    await api.call("PUT", "/v0/topics/t", CONFIG)
    for start in range(0, count, 5000):
        await api.write("t", *range(min(5000, count - start)))
    _stop(api, orderly=False)
    again = Api(tmp_path)
    head = (await _described(again))[0]
    assert count <= head <= count + 2 * AHEAD
    lost = (await again.diff("t", from_seq=0))["tombstone"]
    assert (lost["gap_to"], lost["reason"]) == (head, "restart")
    assert (await again.write("t", "next"))["first_seq"] == head + 1
    _stop(again, orderly=False)


async def test_no_record_is_acknowledged_before_the_disk_knows_how_far_it_may_count(
    tmp_path: Path,
) -> None:
    api = Api(tmp_path)
    await api.call("PUT", "/v0/topics/t", CONFIG)
    log = api.stream("t").log
    assert isinstance(log, MemoryLog)
    answers: list[object] = []
    batch = Batch()
    batch.add(b"t", b"", b"", b"1")
    log.hold_above(0, answers.append)
    log.append(batch, 0, 1, 1, answers.append)
    await asyncio.sleep(0)
    assert answers == [1]  # how far it wants to count; nobody is told of the record yet
    assert log.committed_seq == 0
    log.allow(1)
    await asyncio.sleep(0)
    assert answers == [1, None]
    _stop(api, orderly=False)
