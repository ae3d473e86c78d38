"""A data directory that is renamed away under a running server: no write hangs or is lost."""

import http.client
import json
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from support.broker import millstream
from support.peers import Peer

LIMIT = 30.0
PAYLOAD = "x" * 250_000
MOST = 1600  # writes; a file of the log holds some 260


@contextmanager
def connected(peer: Peer) -> Iterator[http.client.HTTPConnection]:
    with closing(http.client.HTTPConnection(peer.host, peer.http_port, timeout=LIMIT)) as client:
        yield client


def ask(client: http.client.HTTPConnection, method: str, path: str, body: object = None) -> tuple:
    raw = None if body is None else json.dumps(body)
    client.request(method, path, raw, {"content-type": "application/json"})
    answer = client.getresponse()
    return answer.status, json.loads(answer.read())


def write(client: http.client.HTTPConnection, durability: str) -> tuple:
    asked = {"records": [{"data": PAYLOAD}], "config": {"durability": durability}}
    return ask(client, "POST", "/v0/topics/t", asked)


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_directory_that_is_gone_refuses_writes_and_loses_none_that_was_acknowledged(
    tmp_path: Path, durability: str
) -> None:
    data = tmp_path / "data"
    with millstream(data_dir=data) as peer, connected(peer) as client:
        assert write(client, durability)[0] in (200, 201)
        acknowledged = 1
        data.rename(tmp_path / "elsewhere")
        for _ in range(MOST):
            status, shown = write(client, durability)
            if status != 200:
                break
            acknowledged += 1
        assert (status, shown["error"]["code"]) == (503, "shard_read_only")
        assert write(client, durability)[0] == 503
        status, shown = ask(client, "GET", "/healthz")
        assert (status, shown["status"]) == (503, "unavailable")
        assert "shard 0 is read-only: create of the write-ahead log failed" in shown["error"]
        status, shown = ask(client, "GET", "/v0/health")
        assert (status, shown["status"]) == (200, "unavailable")
        peer.process.send_signal(signal.SIGTERM)
        assert peer.process.wait(LIMIT) == 0
    with millstream(data_dir=tmp_path / "elsewhere") as peer, connected(peer) as client:
        status, topic = ask(client, "GET", "/v0/topics/t")
        assert topic["head_seq"] >= acknowledged
        found = 0
        while found < acknowledged:
            asked = {"from_seq": found, "limit": 20}
            status, page = ask(client, "POST", "/v0/topics/t/diff", asked)
            assert all(each["data"] == PAYLOAD for each in page["records"])
            found = page["next_from_seq"]
        assert write(client, durability)[0] == 200
