"""natscli, command by command, on both servers: the same exit code and the same object.

It runs where ``nats`` is on the PATH, or where ``NATSCLI`` names it.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from natscli_commands import SESSIONS
from natscli_differences import difference, excuse

from support.peers import Peer, free_port, nats_server_path, running

NATSCLI = os.environ.get("NATSCLI") or shutil.which("nats") or ""
SECONDS = 60
CONFIG = """
server_name: S1
jetstream { store_dir: "DIRECTORY" }
accounts {
  APP { jetstream: enabled, users: [{user: app, password: secret}] }
  SYS { users: [{user: sys, password: secret}] }
}
system_account: SYS
"""


@contextmanager
def serving(name: str, command: list[str], directory: Path) -> Iterator[Peer]:
    directory.mkdir()
    conf = directory / "server.conf"
    conf.write_text(CONFIG.replace("DIRECTORY", str(directory / "data")))
    port, http = free_port(), free_port()
    command = [*command, "-c", str(conf), "-a", "127.0.0.1", "-p", str(port), "-m", str(http)]
    with running(name, command, port, directory, http) as peer:
        yield peer


def run(peer: Peer, user: str, command: str) -> tuple[int, str]:
    """Return the exit code and what was said; paths are the same for both."""
    home = peer.directory / "home"
    environment = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home), "TZ": "UTC"}
    login = ["-s", peer.url, "--user", user, "--password", "secret"]
    asked = [NATSCLI, *login, *shlex.split(command.replace("DIR", str(home)))]
    try:
        said = subprocess.run(
            asked, capture_output=True, text=True, env={**environment, "NO_COLOR": "1"},
            timeout=SECONDS, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return 999, f"nothing within {SECONDS} seconds"
    text = said.stdout if said.returncode == 0 else said.stdout + said.stderr
    return said.returncode, text.replace(str(home), "DIR").replace(peer.url, "URL")


@pytest.mark.slow
@pytest.mark.skipif(not NATSCLI, reason="natscli: no nats on the PATH, and NATSCLI names none")
def test_every_command_says_the_same(tmp_path: Path):
    differing, succeeded, excused, count = [], 0, 0, 0
    ours = [sys.executable, "-m", "millstream", "nats-server"]
    with (
        serving("ours", ours, tmp_path / "ours") as here,
        serving("theirs", [nats_server_path()], tmp_path / "theirs") as there,
    ):
        for peer in (here, there):
            home = peer.directory / "home"
            home.mkdir()
            (home / "file").write_text("hello" * 100)
            (home / "large").write_bytes(b"x" * 400_000)
        for user, commands in SESSIONS:
            for command in commands:
                said, wanted = (run(peer, user, command) for peer in (here, there))
                count += 1
                succeeded += wanted[0] == 0
                excused += bool(excuse(command))
                found = difference(said, wanted, command)
                if found:
                    differing.append(f"{command}\n  {found}")
    print(f"commands={count} succeeded={succeeded} excused={excused} differ={len(differing)}")
    print(*differing, sep="\n")
    assert count >= 300
    assert succeeded >= 300
    assert differing == []
