"""``millstream apply`` and ``get``: a file becomes a server, and a server a file."""

import json
from pathlib import Path

import pytest

from support.command_line import Terminal
from support.peers import Peer

FILE = """
streams:
  ORDERS:
    subjects: [orders.>]
    max_age: 7d
    max_bytes: 10GB
  COPY:
    sources: [ORDERS]
consumers:
  ORDERS:
    billing: {max_deliver: 5, backoff: [1s, 10s], filter_subject: orders.new}
kv:
  CONFIG: {history: 5, ttl: 1h}
"""
HTTP = """
topics:
  clicks: {durability: fsync}
queues:
  jobs: {max_deliveries: 3, dead_letter: jobs-dead}
routers:
  copy: {source: clicks, dest: archive}
"""


@pytest.fixture
def cli(either: Peer, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(capsys, "-s", either.url)


def test_a_file_becomes_a_server_and_back(cli: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text(FILE)
    planned = cli("apply", "-f", str(file), "--dry-run")
    assert planned.out.splitlines() == [
        "create stream ORDERS",
        "create stream COPY",
        "create bucket CONFIG",
        "create consumer ORDERS/billing",
    ]
    assert cli("apply", "-f", str(file)).code == 2  # nobody is there to ask
    assert cli("stream", "ls", "-n").out.strip() == ""
    done = cli("apply", "-f", str(file), "--yes")
    assert (done.code, done.err) == (0, "done: 4 steps\n")
    assert cli("apply", "-f", str(file), "--yes").err == "nothing to do: the server is like that\n"
    got = cli("get", "streams", "consumers", "kv", "-o", "json")
    told = json.loads(got.out)
    assert told["streams"]["ORDERS"] == {
        "subjects": ["orders.>"],
        "max_bytes": 10 << 30,
        "max_age": 7 * 86400 * 10**9,
    }
    assert told["kv"] == {"CONFIG": {"history": 5, "ttl": 3600 * 10**9}}
    assert told["consumers"]["ORDERS"]["billing"]["max_deliver"] == 5
    exported = tmp_path / "exported.yaml"
    exported.write_text(cli("get", "streams", "consumers", "kv").out)
    assert cli("apply", "-f", str(exported), "--yes").err.startswith("nothing to do")
    file.write_text(FILE.replace("7d", "30d").replace("  COPY:\n    sources: [ORDERS]\n", ""))
    changed = cli("apply", "-f", str(file), "--prune", "--yes")
    assert changed.code == 0
    assert changed.out.splitlines() == [
        "change stream ORDERS",
        f"    - max_age: {7 * 86400 * 10**9}",
        f"    + max_age: {30 * 86400 * 10**9}",
        "remove stream COPY",
    ]
    for name in ("ORDERS", "KV_CONFIG"):
        cli("stream", "rm", name, "-f")


def test_what_http_has_is_applied_too(ours: Peer, capsys: pytest.CaptureFixture[str]) -> None:
    web = f"http://127.0.0.1:{ours.http_port}"
    cli = Terminal(capsys, "-s", ours.url, "--http-url", web)
    done = cli("apply", "-f", "-", "--yes", stdin=HTTP.encode())
    assert done.code == 0, done.err
    assert "nothing to do" in cli("apply", "-f", "-", "--yes", stdin=HTTP.encode()).err
    told = json.loads(cli("get", "-o", "json").out)
    assert told["queues"]["jobs"]["dead_letter"] == "jobs-dead"
    assert told["topics"]["clicks"]["durability"] == "fsync"
    assert told["routers"]["copy"]["dest"] == "archive"
    gone = cli("apply", "-f", "-", "--prune", "--yes", stdin=b"routers: {}\nqueues: {}\n")
    assert gone.out.splitlines() == ["remove router copy", "remove queue jobs"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("stream: {}", "no section 'stream'; did you mean 'streams'?"),
        ("streams: {A: {subject: x}}", "no field 'subject'; did you mean 'subjects'?"),
        ("streams: {A: {max_age: 7 days}}", "'7 days' is no length of time"),
        ("streams: [A]", "streams must map names to settings"),
        ("{", "-:"),
    ],
)
def test_mistakes_are_named_with_their_place(
    capsys: pytest.CaptureFixture[str], text: str, complaint: str
) -> None:
    done = Terminal(capsys)("apply", "-f", "-", stdin=text.encode())
    assert (done.code, done.out) == (2, "")
    assert complaint in done.err
