"""Makes the directories that later versions must open: ``python -m support.older.make VERSION``.

Run it in ``tests``, with the version whose format is to be kept. It writes the directories into
``fixtures/VERSION``, and beside them, in ``expected.json``, what that version shows of copies.
"""

import asyncio
import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from support.older.fill import begin, event, fill_sealed, go_on
from support.older.opened import OPENINGS
from support.older.place import Place, pack, run, serving, unpack

FIXTURES = Path(__file__).parents[2] / "fixtures"
PULLS = [
    *(["ORDERS", name] for name in ("some", "naked", "all", "once", "paused", "eu")),
    *(["WORK", "worker"], ["INTEREST", "first"], ["INTEREST", "second"], ["LIFETIMES", "none"]),
]
PUBLISHES: list[list[Any]] = [
    ["orders.eu", "again", {"Nats-Msg-Id": "order-60"}],
    ["orders.eu", "probe", None],
    ["history.1", "probe", None],
    *([subject, "probe", None] for subject in ("disk.1", "written", "ephemeral", "capped")),
    *([subject, "probe", None] for subject in ("damaged", "newest.1", "again", "started")),
    ["counter.a", "", {"Nats-Incr": "+1"}],
]
COPIES = [["MIRROR", "orders.eu", "probe"], ["GATHERED", "history.1", "probe"]]


def main(version: str) -> None:
    target = FIXTURES / version
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        held = make(Place(Path(home)))
        pack(Place(Path(home)), target)
    expected: dict[str, Any] = {"held": held}
    for name, opening in OPENINGS.items():
        with tempfile.TemporaryDirectory() as home:
            expected[name] = opening.open(unpack(target, Path(home), opening.parts), held)
    _leave_out_twice_told(expected)
    (target / "expected.json").write_text(shown(expected) + "\n")


def _leave_out_twice_told(expected: dict[str, Any]) -> None:
    """Say of streams in the backup only where they differ from those in the directory."""
    for user, streams in expected["restored"]["streams"].items():
        for name, stream in streams.items():
            if stream == expected["data"]["streams"][user][name]:
                streams[name] = "as in data"


def shown(value: Any, indent: str = "") -> str:
    """Write JSON so that a record or a consumer is a line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) < 200 or not isinstance(value, dict | list):
        return line
    inner = indent + " "
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {shown(part, inner)}" for key, part in value.items()]
        return "{\n" + ",\n".join(inner + part for part in parts) + "\n" + indent + "}"
    parts = [shown(part, inner) for part in value]
    return "[\n" + ",\n".join(inner + part for part in parts) + "\n" + indent + "]"


def make(place: Place) -> dict[str, Any]:
    """Run several lives of servers over the directories; returns what is needed to go on."""
    tokens = [
        run(time.time_ns(), "key", "add", "--data-dir", str(place.data), "--name", name, *more)
        for name, more in (
            ("all", []),
            ("some", ["--scopes", "write", "--prefix", "ev"]),
            ("gone", []),
        )
    ]
    token, some, gone = (each.strip() for each in tokens)
    with serving(place, place.data, time.time_ns(), "boot-1", token=token) as doors:
        asyncio.run(begin(doors))
        _settle()
    _spoil(place.data, b"damaged 12")
    for boot, stop in (("boot-2", signal.SIGTERM), ("boot-3", signal.SIGKILL)):
        with serving(place, place.data, time.time_ns(), boot, token=token, stop=stop) as doors:
            doors.post("/v0/topics/DAMAGED/diff", {"from_seq": 0, "limit": 100})
            _moved(place, 1)
            asyncio.run(_disk(doors))
    run(time.time_ns(), "key", "revoke", "gone", "--data-dir", str(place.data))
    with serving(
        place, place.data, time.time_ns(), "boot-4", token=token, stop=signal.SIGKILL
    ) as doors:
        held = asyncio.run(go_on(doors))
        _settle()
        run(time.time_ns(), "backup", str(place.data), str(place.backups))
        doors.post("/v0/topics/events", event(40))
        _settle()
    _spoil(place.data, b"damaged 33")
    _sealed(place)
    held |= {"tokens": [token, some, gone], "write": event(41), "pulls": PULLS}
    return {**held, "publishes": PUBLISHES, "copies": COPIES, "made_ns": time.time_ns()}


async def _disk(doors: Any) -> None:
    """Write something that a sync has not covered when the server is killed."""
    doors.post("/v0/topics/events", event(100 + time.time_ns() % 1000))


def _sealed(place: Place) -> None:
    with serving(place, place.sealed, time.time_ns(), "boot-1") as doors:
        asyncio.run(fill_sealed(doors, 0, 50))
        _settle()
    with serving(place, place.sealed, time.time_ns(), "boot-2", stop=signal.SIGKILL) as doors:
        asyncio.run(fill_sealed(doors, 50, 60))
        _settle()


def _settle() -> None:
    """Let what is done behind the answers happen; nothing relies on how much of it has."""
    time.sleep(1.5)


def _moved(place: Place, count: int) -> None:
    """Wait until so many segments are at the cold place."""
    deadline = time.monotonic() + 60
    while len(list(place.data.glob("streams/*/*.cold"))) < count:
        if time.monotonic() > deadline:
            return
        time.sleep(0.1)


def _spoil(directory: Path, payload: bytes) -> None:
    """Flip a bit of a record that is in a sealed segment."""
    for path in directory.glob("streams/*/*.data"):
        content = bytearray(path.read_bytes())
        at = content.find(payload)
        if at >= 0 and path.with_suffix(".idx").exists():
            content[at] ^= 1
            path.write_bytes(content)
            return
    raise AssertionError(f"{payload!r} is in no sealed segment")


if __name__ == "__main__":
    main(sys.argv[1])
    shutil.rmtree(FIXTURES / "__pycache__", ignore_errors=True)
