"""``--signal reload=1234``: tell a running server something, by its process id or its pid file."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from millstream.server.command_line.flags import BadFlag

SIGNALS = {
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
    "ldm": signal.SIGUSR2,
}
_PROCESSES = Path("/proc")


def send(text: str, kill: Callable[[int, int], None] = os.kill) -> None:
    """Send the signal that ``command[=pid or pid file]`` asks for; raises ``BadFlag``."""
    command, _, target = text.partition("=")
    if command not in SIGNALS:
        raise BadFlag(f"unknown signal {command!r}: one of {', '.join(SIGNALS)}")
    pid = _pid(target) if target else _only_server()
    try:
        kill(pid, SIGNALS[command])
    except ProcessLookupError:
        raise BadFlag(f"there is no process {pid}") from None
    except PermissionError:
        raise BadFlag(f"not allowed to signal process {pid}") from None


def _pid(target: str) -> int:
    try:
        text = Path(target).read_text()
    except OSError:
        text = target
    try:
        return int(text)
    except ValueError:
        raise BadFlag(f"{target!r} is neither a process id nor a pid file") from None


def _only_server() -> int:
    found = list(_servers())
    if len(found) == 1:
        return found[0]
    if not found:
        raise BadFlag("no nats-server is running: name one with --signal <command>=<pid>")
    listed = ", ".join(str(pid) for pid in found)
    raise BadFlag(f"several are running ({listed}): name one with --signal <command>=<pid>")


def _servers() -> Iterator[int]:
    """Go through the processes that run as nats-server, without this one."""
    for entry in _PROCESSES.iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(Path(os.fsdecode(word)).name == "nats-server" for word in words[:4]):
            yield int(entry.name)
