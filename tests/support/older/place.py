"""A place with directories of one version: data, cold history, backups; and a server over them."""

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT = 60.0
BLOCK = 1 << 20
PARTS = ("data", "cold", "sealed", "backups")
SERVE_AT = Path(__file__).with_name("serve_at.py")
CONFIG = """
accounts { LAB { jetstream: enabled, users: [{user: lab, password: lab}] } }
authorization { users: [{user: main, password: main}] }
"""
KEY = "millstream-fixture-key"  # guards nothing: whoever has the fixture may read it


@dataclass(frozen=True, slots=True)
class Place:
    """The directories below ``home``."""

    home: Path

    @property
    def data(self) -> Path:
        """A data directory whose old segments are cold."""
        return self.home / "data"

    @property
    def sealed(self) -> Path:
        """A data directory that is encrypted, with two write-ahead logs."""
        return self.home / "sealed"

    @property
    def cold(self) -> Path:
        return self.home / "cold"

    @property
    def backups(self) -> Path:
        return self.home / "backups"


@dataclass(frozen=True, slots=True)
class Doors:
    """Where a started server listens, and the key that opens its HTTP door."""

    nats: str
    http: str
    process: subprocess.Popen[bytes]
    token: str = ""

    def call(self, method: str, path: str, body: object = None, token: str = "") -> Any:
        """Call the HTTP API; a refusal is returned too, as ``{"status", "code"}``."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        bearer = token or self.token
        login = f"Bearer {bearer}" if bearer else f"Basic {b64encode(b'main:main').decode()}"
        headers = {"content-type": kind, "authorization": login}
        request = urllib.request.Request(self.http + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=LIMIT) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return {"status": error.code, "code": json.load(error)["error"]["code"]}

    def get(self, path: str) -> Any:
        return _accepted(path, self.call("GET", path))

    def post(self, path: str, body: object) -> Any:
        return _accepted(path, self.call("POST", path, body))

    def put(self, path: str, body: object) -> Any:
        return _accepted(path, self.call("PUT", path, body))


def _accepted(path: str, answer: Any) -> Any:
    assert "status" not in answer, f"{path}: {answer}"
    return answer


@contextmanager
def serving(
    place: Place,
    directory: Path,
    now_ns: int,
    boot: str = "-",
    *,
    token: str = "",
    stop: signal.Signals = signal.SIGTERM,
) -> Iterator[Doors]:
    """Serve ``directory`` as at this time, until the block ends."""
    config = place.home / "server.conf"
    config.write_text(CONFIG)
    for old in place.home.glob("*.ports"):
        old.unlink()
    process = _started(place, directory, [*_program(now_ns, boot), "serve", "-c", str(config)])
    try:
        ports = _ports(place.home, process)
        yield Doors(ports["nats"][0], ports["monitoring"][0], process, token)
    finally:
        process.send_signal(stop)
        process.wait(LIMIT)


def run(now_ns: int, *arguments: str, expect: Sequence[int] = (0,)) -> str:
    """Run another millstream command as at this time; returns what it printed."""
    done = subprocess.run(
        [*_program(now_ns, "-"), *arguments], capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode in expect, f"{arguments}: {done.returncode} {done.stderr}"
    return done.stdout


def _program(now_ns: int, boot: str) -> list[str]:
    return [sys.executable, str(SERVE_AT), str(now_ns), boot]


def _started(place: Place, directory: Path, command: list[str]) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    more = ["--cold", str(place.cold), "--hot-segments", "1"]
    if directory == place.sealed:
        environment["MILLSTREAM_ENCRYPTION_KEY"] = KEY
        more = ["--wal-shards", "2"]
    with (place.home / "output.log").open("ab") as output:
        return subprocess.Popen(
            [
                *(*command, "--port", "0", "--http-port", "0", "--data-dir", str(directory)),
                *("--segment-max-events", "20", "--ports-file-dir", str(place.home), *more),
            ],
            stdout=output,
            stderr=output,
            env=environment,
        )


def _ports(home: Path, process: subprocess.Popen[bytes]) -> dict[str, list[str]]:
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline and process.poll() is None:
        for file in home.glob("*.ports"):
            try:
                found: dict[str, list[str]] = json.loads(file.read_text())
            except ValueError:
                continue  # still being written
            return found
        time.sleep(0.02)
    raise AssertionError((home / "output.log").read_text()[-3000:])


def pack(place: Place, folder: Path) -> None:
    """Write an archive of each directory."""
    for part in PARTS:
        with tarfile.open(folder / f"{part}.tar.xz", "w:xz", preset=9) as packed:
            packed.add(place.home / part, part, filter=_nobody)


def _nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out whose file it was."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def unpack(folder: Path, home: Path, parts: Sequence[str] = PARTS) -> Place:
    """Make directories again; the zeros of write-ahead logs take no room."""
    for part in parts:
        with tarfile.open(folder / f"{part}.tar.xz", "r:xz") as packed:
            for member in packed:
                _unpack(packed, member, home / member.name)
    return Place(home)


def _unpack(packed: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    source = packed.extractfile(member)
    if source is None:
        path.mkdir()
        return
    with source, path.open("wb") as file:
        while block := source.read(BLOCK):
            if block.count(0) == len(block):
                file.seek(len(block), os.SEEK_CUR)
            else:
                file.write(block)
        file.truncate(member.size)
    path.chmod(member.mode)
