"""The ``limits`` block of a configuration: held to, and shown, as at the reference."""

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

from nats.aio.client import Client

import nats
from support.peers import free_port, nats_server_path, running

CONFIG = """
jetstream: {{
  store_dir: "{dir}"
  limits: {{
    max_ack_pending: 500, max_request_batch: 100, duplicate_window: "1m", max_ha_assets: 7
    batch: {{ max_inflight_per_stream: 3, max_inflight_total: 9, max_msgs: 10, timeout: "2s" }}
  }}
}}
"""
MINUTE = 60 * 10**9


def consumer(**config: Any) -> tuple[str, Any]:
    named = {"name": "c", "ack_policy": "explicit", **config}
    return "CONSUMER.CREATE.S.c", {"stream_name": "S", "config": named}


REQUESTS = [
    ("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]}),
    ("STREAM.CREATE.T", {"name": "T", "subjects": ["t"], "max_age": MINUTE // 2}),
    ("STREAM.CREATE.U", {"name": "U", "subjects": ["u"], "duplicate_window": 2 * MINUTE}),
    ("STREAM.UPDATE.S", {"name": "S", "subjects": ["s"], "description": "words"}),
    ("STREAM.UPDATE.S", {"name": "S", "subjects": ["s"], "duplicate_window": 2 * MINUTE}),
    consumer(),
    consumer(max_batch=101),
    consumer(max_ack_pending=501),
    consumer(max_ack_pending=500, max_batch=7),
    consumer(name="c", deliver_subject="d", max_ack_pending=501),
    ("CONSUMER.CREATE.S.n", {"stream_name": "S", "config": {"name": "n", "ack_policy": "none"}}),
]


def plain(answer: Any) -> Any:
    """Return what the limits decide."""
    config = answer.get("config", {})
    kept = ("duplicate_window", "max_ack_pending", "max_batch")
    return answer.get("error"), {key: config[key] for key in kept if key in config}


def look(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.loads(answer.read())


async def scenario(client: Client, http: str) -> list[Any]:
    seen: list[Any] = []
    for subject, body in REQUESTS:
        asked = json.dumps(body).encode()
        answer = await client.request(f"$JS.API.{subject}", asked, timeout=5)
        seen.append((subject, body, plain(json.loads(answer.data))))
    for page in ("jsz", "varz"):
        found = look(f"{http}/{page}")
        limits = found.get("jetstream", found)["limits"]
        limits.pop("default_max_consumers", None)  # there is no such default here
        seen.append((page, limits))
    return seen


async def test_limits_of_the_server_bound_and_fill_requests_and_are_shown(tmp_path: Path):
    seen = []
    for name, command in (
        ("ours", [sys.executable, "-m", "millstream", "nats-server"]),
        ("theirs", [nats_server_path()]),
    ):
        directory = tmp_path / name
        directory.mkdir()
        conf = directory / "server.conf"
        conf.write_text(CONFIG.format(dir=directory / "data"))
        port, http = free_port(), free_port()
        command += ["-c", str(conf), "-a", "127.0.0.1", "-p", str(port), "-m", str(http)]
        with running(name, command, port, directory, http):
            client = await nats.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False)
            try:
                seen.append(await scenario(client, f"http://127.0.0.1:{http}"))
            finally:
                await client.close()
    assert [pair for pair in zip(*seen, strict=True) if pair[0] != pair[1]] == []
