"""The two servers of a comparison, set up alike."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from cases import MEMORY, SOON, SYNCED, UNSYNCED

from support.broker import millstream
from support.peers import Peer, nats_server, scratch_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

STREAM = "BENCH"
BUCKET = "KV_bench"
MOST_CONSUMERS = 100_000  # said, since nats-server takes 1,000 where nothing is said
# When both servers sync what they write: as nats-server does by itself, before each ack, and as
# millstream does for the class `disk`.
SYNC_INTERVAL = {UNSYNCED: "2m", SYNCED: "always", SOON: "50ms"}


@contextlib.contextmanager
def broker(name: str, setting: str) -> Iterator[Peer]:
    """Run a server for cases of this setting: nats-server, this millstream, or another checkout's.

    ``name`` is ``nats-server``, ``millstream`` or the path of a checkout.
    """
    sync = SYNC_INTERVAL.get(setting, "")
    if name == "nats-server":
        with nats_server(jetstream=True, sync=sync) as peer:
            yield peer
        return
    with scratch_directory("millstream-conf") as directory:
        config = directory / "server.conf"
        config.write_text(f'jetstream {{ sync_interval: "{sync}" }}\n' if sync else "")
        python = sys.executable if name == "millstream" else python_of(Path(name))
        with millstream(extra=["--config", str(config)], python=python) as peer:
            yield peer


def python_of(checkout: Path) -> str:
    """Return the Python of a checkout's own environment."""
    python = checkout.absolute() / ".venv" / "bin" / "python"
    if not python.exists():
        raise FileNotFoundError(f"{python} is missing: run `make build` in {checkout}")
    return str(python)


def fresh_stream(peer: Peer, setting: str) -> None:
    """Leave an empty stream on ``bench.js`` and below, durable as the setting says."""
    config: dict[str, Any] = {
        "name": STREAM,
        "subjects": ["bench.js", "bench.js.>"],
        "storage": "memory" if setting == MEMORY else "file",
        "retention": "limits",
        "max_consumers": MOST_CONSUMERS,
        "num_replicas": 1,
    }
    _create(peer, config)


def fresh_bucket(peer: Peer) -> None:
    """Leave an empty key-value bucket, as clients make them."""
    config: dict[str, Any] = {
        "name": BUCKET,
        "subjects": ["$KV.bench.>"],
        "max_msgs_per_subject": 1,
        "discard": "new",
        "allow_direct": True,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "num_replicas": 1,
    }
    _create(peer, config)


def _create(peer: Peer, config: dict[str, Any]) -> None:
    with contextlib.suppress(ApiError):
        api(peer, f"STREAM.DELETE.{config['name']}", {})
    api(peer, f"STREAM.CREATE.{config['name']}", config)


def fresh_consumer(peer: Peer, *, acks: bool, filtered: str) -> None:
    """Leave a pull consumer named ``bench`` that has delivered nothing yet."""
    config: dict[str, Any] = {
        "durable_name": "bench",
        "deliver_policy": "all",
        "ack_policy": "explicit" if acks else "none",
        "replay_policy": "instant",
        "max_ack_pending": 10_000 if acks else -1,
    }
    if filtered:
        config["filter_subject"] = filtered
    with contextlib.suppress(ApiError):
        api(peer, f"CONSUMER.DELETE.{STREAM}.bench", {})
    request = {"stream_name": STREAM, "config": config}
    api(peer, f"CONSUMER.DURABLE.CREATE.{STREAM}.bench", request)


class ApiError(RuntimeError):
    """The server refused an API request."""


def api(peer: Peer, subject: str, request: dict[str, Any]) -> dict[str, Any]:
    """Ask ``$JS.API.<subject>`` over a socket of its own."""
    body = json.dumps(request) if request else ""
    with socket.create_connection((peer.host, peer.port), timeout=10) as sock:
        lines = [
            'CONNECT {"verbose":false,"headers":true,"no_responders":true}',
            "SUB _INBOX.api 1",
            f"PUB $JS.API.{subject} _INBOX.api {len(body)}",
            f"{body}\r\n",
        ]
        sock.sendall("\r\n".join(lines).encode())
        answer = _first_message(sock)
    if b" 503" in answer[:20]:
        raise ApiError(f"{peer.name} has no JetStream API")
    reply: dict[str, Any] = json.loads(answer)
    if "error" in reply:
        raise ApiError(f"{peer.name} refused {subject}: {reply['error']}")
    return reply


def _first_message(sock: socket.socket) -> bytes:
    with sock.makefile("rb") as lines:
        for line in lines:
            if line.startswith(b"-ERR"):
                raise ApiError(line.decode())
            if line.startswith((b"MSG ", b"HMSG ")):
                return lines.read(int(line.split()[-1]))
    raise ApiError("the server closed the connection")
