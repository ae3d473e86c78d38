"""A watcher that does not read holds nobody up, and loses nothing silently."""

import asyncio
import re
import socket

import pytest
from topics_api import Api, Events

from millstream.http.door import HttpDoor
from millstream.topics.audience.group import FEW


async def test_a_stuck_watcher_changes_nothing_for_the_others(api: Api) -> None:
    await api.call("PUT", "/v0/topics/t", {"cap_records": 5})
    stuck = Events(await api.send("GET", "/v0/topics/t/tail?from_seq=0"))
    quick = Events(await api.send("GET", "/v0/topics/t/tail?from_seq=0"))
    for events in (stuck, quick):
        assert (await events.named())[0] == "caught-up"
    for n in range(20):
        await api.write("t", n)  # is acknowledged although nobody takes the first one's events
        name, shown = await quick.named()
        assert (name, [record["data"] for record in shown["records"]]) == ("record", [n])
        assert (await quick.named())[0] == "caught-up"
    name, lost = await stuck.named()
    assert (name, lost["gap_from"], lost["gap_to"]) == ("tombstone", 1, 15)
    name, shown = await stuck.named()
    assert [record["data"] for record in shown["records"]] == [15, 16, 17, 18, 19]
    for events in (stuck, quick):
        await events.close()


async def test_nothing_is_kept_for_a_stuck_watcher(api: Api) -> None:
    await api.call("PUT", "/v0/topics/t")
    stuck = Events(await api.send("GET", "/v0/topics/t/tail?from_seq=0"))
    assert (await stuck.named())[0] == "caught-up"
    for n in range(200):
        await api.write("t", n)
    await asyncio.sleep(0)
    assert api.topics.scheduler.depth <= 1  # one topic, however often it grew
    name, shown = await stuck.named()
    assert (name, len(shown["records"])) == ("record", 200)
    await stuck.close()


class Reader:
    """A watcher on a socket: what it heard so far, taken out of its chunks."""

    def __init__(self, port: int) -> None:
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.sock.connect(("127.0.0.1", port))
        self.sock.setblocking(False)
        self.raw = bytearray()
        self._headed = False
        self._heard: list[int] = []

    async def hear(self, count: int) -> list[int]:
        """Read until so many records came; returns their sequences in the order of arrival."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(20):
            while len(self.seqs()) < count:
                data = await loop.sock_recv(self.sock, 1 << 20)
                assert data, "it was dropped"
                self.raw += data
        return self.seqs()

    def seqs(self) -> list[int]:
        """Return what arrived whole, having checked that each chunk is as long as it says."""
        if not self._headed:
            del self.raw[: self.raw.index(b"\r\n\r\n") + 4]
            self._headed = True
        while (end := self.raw.find(b"\r\n")) >= 0:
            whole = end + 4 + int(self.raw[:end], 16)
            if len(self.raw) < whole:
                break
            assert self.raw[whole - 2 : whole] == b"\r\n"
            self._heard += [int(found) for found in re.findall(rb'"\$seq":(\d+)', self.raw[:whole])]
            del self.raw[:whole]
        return self._heard


@pytest.mark.parametrize("count", [4, 2 * FEW + 1])
async def test_a_watcher_whose_socket_is_full_holds_nobody_up_and_misses_nothing(
    api: Api, count: int
) -> None:
    await api.call("PUT", "/v0/topics/t", {"durability": "ephemeral"})
    door = HttpDoor(asyncio.get_running_loop(), api.routes, api.clock, on_stop=api.topics.stop)
    port = await door.start("127.0.0.1", 0)
    readers = [Reader(port) for _ in range(count)]
    loop = asyncio.get_running_loop()
    for reader in readers:
        await loop.sock_sendall(
            reader.sock, b"GET /v0/topics/t/tail HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        while b"caught-up" not in reader.raw:
            reader.raw += await loop.sock_recv(reader.sock, 65536)
    stuck, *quick = readers
    sent = 0
    for size in (10, 3000, 70_000) * 100:  # until its buffers are full, and then some
        await api.write("t", "x" * size)
        sent += 1
        for reader in quick:
            assert await reader.hear(sent) == list(range(1, sent + 1))
        if door.stalled() and sent >= 150:
            break
    assert door.stalled() == 1  # it is stuck, and it alone
    assert await stuck.hear(sent) == list(range(1, sent + 1))
    for reader in readers:
        reader.sock.close()
    await door.stop()
