"""The whole way: a real client, the door, the routes, a store on disk."""

import asyncio
import http.client
import socket
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from topics_api import Api

from millstream.http.door import HttpDoor
from support.waiting import eventually

# libuv opens its signal pipe with the first loop and keeps it for the life of the process.
with asyncio.Runner(loop_factory=uvloop.new_event_loop) as _first:
    _first.run(asyncio.sleep(0))


async def test_a_client_creates_writes_and_reads(port: int) -> None:
    def talk() -> list[tuple[int, Any]]:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        answers = []
        for method, path, body in (
            ("PUT", "/v0/topics/t", None),
            ("POST", "/v0/topics/t", b'{"records":[{"data":1},{"data":2}]}'),
            ("POST", "/v0/topics/t/diff", b"{}"),
            ("GET", "/v0/topics/t", None),
            ("DELETE", "/v0/topics/t", None),
            ("GET", "/v0/topics/t", None),
        ):
            headers = {"Content-Type": "application/json"} if body else {}
            client.request(method, path, body, headers)
            response = client.getresponse()
            answers.append((response.status, msgspec.json.decode(response.read())))
        client.close()
        return answers

    answers = await asyncio.to_thread(talk)
    assert [status for status, _ in answers] == [201, 200, 200, 200, 200, 404]
    assert [record["data"] for record in answers[2][1]["records"]] == [1, 2]


async def test_curl_writes_ndjson_and_tails(port: int) -> None:
    base = f"http://127.0.0.1:{port}/v0/topics/ORDERS"

    def curl(*arguments: str, body: bytes = b"") -> bytes:
        command = ["curl", "-sS", "-m", "20", *arguments]
        return subprocess.run(command, input=body, capture_output=True, check=False).stdout

    def tail(url: str) -> bytes:
        """Return what comes up to the end of the backlog."""
        command, heard = ["curl", "-sSN", "-m", "20", url], b""
        with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            while b"caught-up" not in heard and (line := client.stdout.readline()):
                heard += line
            client.terminate()
        return heard

    def talk() -> tuple[bytes, bytes]:
        lines = b"".join(b'{"data":{"id":%d}}\n' % n for n in range(1000))
        header = "content-type: application/x-ndjson"
        written = curl(base, "-H", header, "--data-binary", "@-", body=lines)
        return written, tail(f"{base}/tail?from_seq=998")

    written, tailed = await asyncio.to_thread(talk)
    assert msgspec.json.decode(written)["last_seq"] == 1000
    assert tailed.startswith(b"retry: 2000\n\nid: ")
    assert b'event: record\ndata: {"topic":"ORDERS","from_seq":998' in tailed
    assert tailed.count(b'"$seq":') == 2


async def test_stopping_ends_an_open_tail_at_once(api: Api) -> None:
    loop = asyncio.get_running_loop()
    door = HttpDoor(loop, api.routes, api.clock, on_stop=api.topics.stop)
    port = await door.start("127.0.0.1", 0)
    await api.write("t", 1)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /v0/topics/t/tail HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readuntil(b"caught-up")
    async with asyncio.timeout(5):
        stop = asyncio.create_task(door.stop())
        rest = await reader.read()
        writer.close()
        await stop
    assert b"server_shutting_down" in rest
    assert rest.endswith(b"0\r\n\r\n")


async def test_a_hundred_watchers_each_get_every_record(api: Api, port: int) -> None:
    await api.write("t", 0)
    request = b"GET /v0/topics/t/tail HTTP/1.1\r\nHost: localhost\r\n\r\n"

    async def follow() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        await reader.readuntil(b"caught-up")
        ready.release()
        seen = b""
        while seen.count(b'"$seq":') < 50:
            seen += await reader.read(65536)
        writer.close()
        return seen.count(b'"$seq":')

    ready = asyncio.Semaphore(0)
    followers = [asyncio.create_task(follow()) for _ in range(100)]
    for _ in followers:
        await ready.acquire()
    for n in range(50):
        await api.write("t", n)
    async with asyncio.timeout(20):
        assert await asyncio.gather(*followers) == [50] * 100


def test_the_door_works_on_uvloop_too(tmp_path: Path) -> None:
    async def round_trip() -> bytes:
        api = Api(tmp_path)
        door = HttpDoor(asyncio.get_running_loop(), api.routes, api.clock, hosts=None)
        port = await door.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = b'{"records":[{"data":"%b"}]}' % (b"x" * 900_000)
        head = b"POST /v0/topics/t HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await reader.readuntil(b'"deduped":false')
        await reader.readuntil(b"]}")
        writer.write(b"POST /v0/topics/t/diff HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        answer = await reader.readexactly(900_100)
        writer.write(b"nonsense\r\n\r\n")
        await reader.readuntil(b"HTTP/1.1 400 ")
        await reader.read()
        writer.close()
        await door.stop()
        api.catalog.close()
        api.store.close()
        return answer

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert b"x" * 900_000 in runner.run(round_trip())


async def test_a_watcher_that_stops_reading_its_socket_changes_nothing_for_the_others(
    api: Api, port: int
) -> None:
    await api.call("PUT", "/v0/topics/t", {"cap_records": 5})
    stuck = await asyncio.to_thread(_tail, port, 4096)
    quick = await asyncio.to_thread(_tail, port, None)
    heard = b""
    text = "x" * 400_000
    for n in range(40):  # far more than the sockets and the server's buffers take
        await api.write("t", {"n": n, "text": text})
        while b'"n":%d,' % n not in heard:
            heard = heard[-20:] + await asyncio.to_thread(quick.recv, 65536)
    assert api.topics.scheduler.depth <= 1
    left = bytearray()
    while b'"n":39,' not in left:
        left += await asyncio.to_thread(stuck.recv, 1 << 20)
    assert left.index(b'"n":0,') < left.index(b"event: tombstone")  # told, not skipped in silence
    stuck.close()
    quick.close()
    await eventually(lambda: not api.topics.sse_connections)


def _tail(port: int, buffer: int | None) -> socket.socket:
    """Return a watcher that has caught up; ``buffer`` bounds what its socket takes unread."""
    sock = socket.socket()
    if buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    sock.settimeout(20)
    sock.connect(("127.0.0.1", port))
    sock.sendall(b"GET /v0/topics/t/tail HTTP/1.1\r\nHost: localhost\r\n\r\n")
    heard = b""
    while b"caught-up" not in heard:
        heard += sock.recv(65536)
    return sock
