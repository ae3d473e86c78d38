"""Clients that leave in the middle: what they asked for is done whole, or not at all."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from topics_api import Api
from xxhash import xxh3_64_hexdigest

from millstream.kernel._batch import Batch
from support.waiting import eventually


async def leave_during(api: Api, method: str, target: str, body: object = None) -> None:
    """Ask for something, and leave while its frame is on its way to the disk."""
    asking = asyncio.ensure_future(api.call(method, target, body))
    for _ in range(3):
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def close(api: Api) -> None:
    await api.topics.finish()
    api.catalog.close()
    api.store.close()


async def restarted(api: Api, directory: Path) -> Api:
    await close(api)
    return Api(directory)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "left"


async def test_a_topic_whose_deleter_left_is_gone_before_a_restart_as_after_it(
    directory: Path,
) -> None:
    api = Api(directory)
    await api.write("t", 1)
    await leave_during(api, "DELETE", "/v0/topics/t")
    await eventually(lambda: api.catalog.find("t") is None)
    await api.write("t", "kept", config={"durability": "fsync"})
    api = await restarted(api, directory)
    assert [each["data"] for each in (await api.diff("t"))["records"]] == ["kept"]
    await close(api)


async def test_a_topic_whose_maker_left_is_there(directory: Path) -> None:
    api = Api(directory)
    await leave_during(api, "PUT", "/v0/topics/t", {"cap_records": 7})
    await eventually(lambda: api.catalog.find("t"))
    await leave_during(api, "PUT", "/v0/topics/t", {"cap_records": 8})
    await eventually(lambda: api.stream("t").config.max_msgs == 8)
    await leave_during(api, "POST", "/v0/topics/u", {"records": [{"data": 1}]})
    await eventually(lambda: api.catalog.find("u"))
    await close(api)


async def test_a_router_whose_maker_or_deleter_left_is_as_after_a_restart(directory: Path) -> None:
    api = Api(directory)
    for name in ("a", "b"):
        await api.call("PUT", f"/v0/topics/{name}")
    await leave_during(api, "PUT", "/v0/routers/r", {"source": "a", "dest": "b"})
    await eventually(lambda: api.topics.routers.find("r", "$G"))
    await leave_during(api, "DELETE", "/v0/routers/r")
    await eventually(lambda: api.topics.routers.find("r", "$G") is None)
    api = await restarted(api, directory)
    assert len(api.topics.routers) == 0
    await close(api)


async def test_dead_letters_whose_sender_left_go_back_once(directory: Path) -> None:
    api = Api(directory)
    await api.call("PUT", "/v0/topics/q", {"type": "queue", "durability": "fsync"})
    letter = {"data": 1, "meta": {"$dead_letter_from": "q"}}
    fsync = {"durability": "fsync"}
    await api.call("POST", "/v0/topics/dead", {"records": [letter], "config": fsync})
    await leave_during(api, "POST", "/v0/topics/dead/redrive", {})
    await eventually(lambda: not api.stream("dead").state().messages)
    assert api.stream("q").state().messages == 1
    await close(api)


async def test_a_sinks_commit_that_is_sent_again_is_stored_once(directory: Path) -> None:
    api = Api(directory)
    await api.call("PUT", "/v0/topics/t", {"durability": "fsync"})
    batch = Batch()
    batch.add(b"t", b"", b"", b"1")
    staged = "/v0/topics/t/stage?sink=s&batch=0&id=f"
    assert (await api.call("POST", staged, batch.buffer))[0] == 200
    file = {"id": "f", "bytes": len(batch.buffer), "check": xxh3_64_hexdigest(batch.buffer)}
    commit = {"sink": "s", "batch": 0, "files": [file]}
    asking = asyncio.ensure_future(api.call("POST", "/v0/topics/t/commit", commit))
    await eventually(lambda: api.stream("t").log.next_seq > 1)  # it is being committed
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    status, again = await api.call("POST", "/v0/topics/t/commit", commit)
    assert (status, again["duplicate"]) == (200, True)
    assert api.stream("t").state().messages == 1
    await close(api)


async def test_what_fails_after_its_client_left_is_logged(directory: Path, caplog: Any) -> None:
    api = Api(directory)

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("nobody hears this")

    with caplog.at_level("INFO"):
        asking = asyncio.ensure_future(api.topics.unbroken.run(fail()))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await api.topics.finish()
        await asyncio.sleep(0)
    assert "nobody hears this" in caplog.text
    await close(api)
