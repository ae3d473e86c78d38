"""A tour through what speaks HTTP, what needs no server, and what gives orders to one."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.client import connect
from support.broker import millstream
from support.command_line import Ran, Terminal, run
from support.peers import Peer
from support.waiting import until


@pytest.fixture
def cli(ours: Peer, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(capsys, "--http-url", f"http://127.0.0.1:{ours.http_port}")


def rows(done: Ran) -> list[dict[str, object]]:
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_topics(cli: Terminal) -> None:
    made = cli("topic", "add", "clicks", "--durability", "fsync", "--ttl", "1d")
    assert made.out == "created log clicks, durability fsync\n"
    assert "there is a topic named 'clicks'" in cli("topic", "add", "clicks").err
    assert cli("topic", "pub", "clicks", '{"a":1}').out == "stored 1 in clicks as seq 1\n"
    many = cli("topic", "pub", "clicks", "--lines", "--tag", "t", stdin=b"1\ntext\n")
    assert many.out == "stored 2 in clicks as seq 2 to 3\n"
    assert [row["data"] for row in rows(cli("topic", "view", "clicks", "--json"))] == [{"a": 1}, 1, "text"]  # fmt: skip # noqa: E501
    assert [row["seq"] for row in rows(cli("topic", "view", "clicks", "--tag", "t", "--json"))] == [2, 3]  # fmt: skip # noqa: E501
    assert len(rows(cli("topic", "tail", "clicks", "--after", "1", "--count", "2", "--json"))) == 2
    assert "fsync before ack" in cli("topic", "info", "clicks").out
    assert "fsync before ack" in cli("topic", "ls").out
    assert cli("topic", "edit", "clicks", "--ttl", "2d", "-f").out == "changed clicks\n"
    assert cli("topic", "purge", "clicks", "--before", "3", "-f").out == "removed 2 records of clicks\n"  # fmt: skip # noqa: E501
    assert "did you mean" in cli("topic", "info", "click").err or "click" in cli("topic", "info", "click").err  # fmt: skip # noqa: E501
    assert cli("topic", "rm", "clicks", "-f").out == "removed clicks (1 records)\n"


def test_queues_and_routers(cli: Terminal) -> None:
    made = cli("queue", "add", "jobs")
    assert made.out.startswith("created queue jobs")
    assert "--max-deliveries and --dead-letter" in made.err
    cli("queue", "pub", "jobs", '{"n":1}')
    assert "to appear in 3600 s" in cli("queue", "pub", "jobs", '{"n":2}', "--delay", "1h").out
    assert rows(cli("queue", "ls", "--json"))[0]["topic"] == "jobs"
    assert [row["data"] for row in rows(cli("queue", "view", "jobs", "--json"))] == [{"n": 1}, {"n": 2}]  # fmt: skip # noqa: E501
    assert cli("queue", "next", "jobs").out == '[1] {"n":1}\n'
    assert cli("queue", "next", "jobs").code == 1
    assert cli("queue", "edit", "jobs", "--max-deliveries", "3", "--dead-letter", "dead", "-f").code == 0  # fmt: skip # noqa: E501
    assert "dead letters to  dead" in cli("queue", "info", "jobs").out
    assert cli("server", "check", "queue", "jobs", "--ready-critical", "5").code == 0
    assert cli("router", "add", "copy", "jobs", "copied").out == "created router copy: jobs → copied\n"  # fmt: skip # noqa: E501
    assert rows(cli("router", "ls", "--json"))[0]["router"] == "copy"
    assert "source" in cli("router", "info", "copy").out
    assert cli("router", "rm", "copy", "-f").code == 0
    assert cli("queue", "rm", "jobs", "-f").code == 0


def test_the_server_seen_from_outside(cli: Terminal, ours: Peer) -> None:
    with connect(ours.url, name="somebody") as client:
        client.flush()
        assert "up for" in cli("server", "info").out
        names = [row.get("name") for row in rows(cli("server", "report", "connections", "--json"))]
        assert "somebody" in names
        assert "STREAM" in cli("top", "--once", "--interval", "0.1").out
        told = rows(cli("top", "--once", "--interval", "0.1", "--json"))[0]
        assert told["connections"] == 1
    assert "$G" in cli("server", "report", "accounts").out
    assert "$G" in cli("account", "report").out
    assert cli("server", "report", "streams").code == 0
    assert cli("server", "check", "health").out.startswith("OK health: ok")
    assert len(rows(cli("bench", "http", "--msgs", "50", "--json"))) == 3
    web = f"http://127.0.0.1:{ours.http_port}/"
    assert rows(cli("open", "--print", "--json")) == [{"url": web, "opened": False}]


def test_spark_readers_are_listed_and_explained(
    ours: Peer, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = Terminal(capsys, "-s", ours.url)
    cli("stream", "add", "READ", "read.>")
    cli("pub", "read.x", "--lines", stdin=b"1\n2\n3\n")
    with connect(ours.url) as client:
        body = json.dumps({"holder": "nightly", "seq": 2, "seconds": 60}).encode()
        assert b"error" not in client.request("$MILLSTREAM.API.HOLD.READ", body).payload
    (found,) = rows(cli("reader", "ls", "--json"))
    assert (found["reader"], found["lag"]) == ("nightly", 1)
    assert "lag  1" in cli("reader", "info", "READ", "nightly").out
    why = cli("consumer", "why", "READ", "nightly")
    assert why.out.startswith("a Spark reader, which has committed up to seq 2")
    cli("consumer", "add", "READ", "plain")
    assert "see `millstream consumer info`" in cli("reader", "info", "READ", "plain").err
    assert cli("reader", "rm", "READ", "nightly", "-f").out == "forgot reader nightly of READ\n"
    narrow = cli("consumer", "add", "READ", "dead", "--filter", "other.>")
    if narrow.code == 0:  # the server lets filters be that match nothing yet
        told = rows(cli("consumer", "why", "READ", "dead", "--json"))[0]
        assert told["reason"] == "filter_matches_nothing"
    cli("stream", "rm", "READ", "-f")


def test_contexts(ours: Peer, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    cli = Terminal(capsys)
    assert "no contexts yet" in cli("context", "ls").out
    assert cli("context", "add", "here", "--url", ours.url, "--password", "p").code == 0
    assert cli("context", "add", "there", "--url", "nats://nowhere.invalid").code == 0
    assert json.loads(cli("context", "info", "here", "--json").out)["password"] != "p"
    assert cli("rtt", "--count", "1").code == 0  # the first one is selected
    assert cli("rtt", "--context", "there", "--timeout", "1").code == 1
    assert cli("context", "select", "there").code == 0
    assert cli("rtt", "--count", "1", "--timeout", "1").code == 1
    assert "did you mean 'here'" in cli("context", "select", "her").err
    assert cli("context", "rm", "there", "-f").code == 0
    assert [row["context"] for row in rows(cli("context", "ls", "--json"))] == ["here"]
    kept = tmp_path / "config" / "millstream" / "contexts.json"
    assert kept.stat().st_mode & 0o077 == 0


def test_what_needs_no_server(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    cli = Terminal(capsys)
    (found,) = rows(cli("errors", "10059", "--json"))
    assert "stream" in str(found["means"])
    assert "topic_not_found" in cli("errors", "topic_not_found").out
    assert cli("errors", "topic_not_fond").code == 1
    assert "did you mean" in cli("errors", "topic_not_fond").err
    told = rows(cli("doctor", "--data-dir", str(tmp_path / "data"), "--json"))
    assert {"system", "kernel", "disk", "sync", "ports"} <= {row["check"] for row in told}
    bad = tmp_path / "bad.conf"
    bad.write_text("port: nonsense")
    ill = cli("doctor", "--data-dir", str(tmp_path), "-c", str(bad))
    assert (ill.code, "BAD" in ill.out) == (1, True)
    assert cli("man").out.startswith(".TH MILLSTREAM 1")


def test_orders_reach_the_server_of_a_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    here = ("--data-dir", str(data))
    assert "is not there" in run(capsys, ["server", "reload", *here]).err
    with millstream(data_dir=data) as broker:
        assert run(capsys, ["server", "reload", *here]).code == 0
        until(lambda: "eload" in broker.output())
        assert run(capsys, ["server", "stop", *here]).code == 2  # nobody is there to ask
        assert run(capsys, ["server", "stop", "--force", *here]).code == 0
        assert broker.process.wait(30) == 0
        # A pid file of a process that is no more says so.
        (data / "millstream.pid").write_text(f"{broker.process.pid}\n")
        assert "does not run any more" in run(capsys, ["server", "drain", "-f", *here]).err


def test_keys_close_http_and_disable_opens_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    here = ("--data-dir", str(data))
    with millstream(data_dir=data) as broker:
        web = ("--http-url", f"http://127.0.0.1:{broker.http_port}")
        assert run(capsys, ["topic", "ls", *web]).code == 0
        made = run(capsys, ["key", "add", "--name", "ci", *here])
        assert "HTTP (API, dashboard, metrics, monitoring) answers only" in made.err
        secret = made.out.strip()
        until(lambda: run(capsys, ["topic", "ls", *web]).code == 1)
        assert run(capsys, ["topic", "ls", *web, "--token", secret]).code == 0
        assert run(capsys, ["rtt", "--count", "1", "-s", broker.url]).code == 0  # NATS stays open
        assert "did you mean 'ci'" in run(capsys, ["key", "revoke", "cii", *here]).err
        assert run(capsys, ["key", "disable", *here]).code == 2  # nobody is there to ask
        assert run(capsys, ["key", "disable", "--force", *here]).code == 0
        until(lambda: run(capsys, ["topic", "ls", *web]).code == 0)
        assert run(capsys, ["key", "disable", "--force", *here]).code == 1


@pytest.mark.parametrize(
    "words", [["version"], ["--help"], ["stream", "--help"], ["kv", "ls", "-h"]]
)
def test_a_command_starts_quickly(words: list[str]) -> None:
    """The goal is 60 ms of CPU above bare Python; what it must not import decides that."""

    def cpu(*command: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    bare = min(cpu(sys.executable, "-c", "pass") for _ in range(5))
    ours = min(cpu(sys.executable, "-m", "millstream", *words) for _ in range(5))
    print(f"{' '.join(words)}: {(ours - bare) * 1000:.0f} ms of CPU above bare Python")
    loaded = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "millstream", *words],
        capture_output=True, text=True, check=True, timeout=60,
    ).stderr  # fmt: skip
    for heavy in ("msgspec", "uvloop", "ssl", "millstream.server", "millstream.kernel", "rich"):
        assert f" {heavy}\n" not in loaded, heavy
