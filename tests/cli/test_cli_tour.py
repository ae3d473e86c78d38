"""A tour through streams, consumers, buckets and objects, the same with both servers."""

import json
import re
from pathlib import Path

import pytest

from support.command_line import Ran, Terminal
from support.peers import Peer


@pytest.fixture
def cli(either: Peer, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(capsys, "-s", either.url)


def rows(done: Ran) -> list[dict[str, object]]:
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def one(done: Ran) -> dict[str, object]:
    (row,) = rows(done)
    return row


def test_streams(cli: Terminal, tmp_path: Path) -> None:
    first = cli("pub", "tour.a", "1")
    assert (first.code, first.out) == (0, "published 1 to tour.a\n")
    assert "millstream stream add TOUR --subjects 'tour.>'" in first.err
    made = cli("pub", "tour.a", "1", "--create")
    assert (made.out, made.err) == ("stored in TOUR as seq 1\n", "created stream TOUR for tour.>\n")
    many = cli("pub", "tour.b", "--lines", stdin=b"2\n3\n4\n")
    assert many.out == "stored 3 in TOUR as seq 2 to 4\n"
    assert "TOUR" in cli("stream", "ls").out
    assert [row["config"]["name"] for row in rows(cli("stream", "ls", "tour.x", "--json"))] == [
        "TOUR"
    ]
    assert re.search(r"messages\s+4", cli("stream", "info", "TOUR").out)
    missed = cli("stream", "info", "TOR")
    assert (missed.code, missed.out) == (1, "")
    assert missed.err == "millstream: the server has no stream named 'TOR'; did you mean 'TOUR'?\n"
    assert one(cli("stream", "get", "TOUR", "2", "--json"))["payload"] == "2"
    assert cli("stream", "get", "TOUR", "--last-for", "tour.b", "--raw").out == "4\n"
    lost = cli("stream", "get", "TOUR", "--last-for", "tour.c")
    assert lost.code == 1
    assert "did you mean 'tour." in lost.err
    assert [r["seq"] for r in rows(cli("stream", "view", "TOUR", "--last", "2", "--json"))] == [
        3,
        4,
    ]
    assert [r["seq"] for r in rows(cli("stream", "view", "TOUR", "--since", "1h", "--json"))] == [1, 2, 3, 4]  # fmt: skip # noqa: E501
    assert cli("stream", "rmm", "TOUR", "2", "--force").code == 0
    gaps = rows(cli("stream", "gaps", "TOUR", "--json"))
    assert gaps == [{"from": 2, "to": 2, "records": 1, "reason": "deleted"}]
    assert cli("stream", "edit", "TOUR", "--max-age", "7d", "--force").out == "changed TOUR\n"
    copied = one(cli("stream", "copy", "TOUR", "TOUR2", "--records", "--json"))
    assert copied["state"]["messages"] == 3
    saved = cli("stream", "backup", "TOUR", str(tmp_path / "saved"))
    assert saved.out.startswith("saved TOUR: 3 records in ")
    assert (
        cli("stream", "rm", "TOUR", "--force").out == "removed TOUR (3 records and 0 consumers)\n"
    )
    back = cli("stream", "restore", str(tmp_path / "saved"))
    assert back.out == "restored TOUR: 3 records, seq 1 to 4\n"
    assert cli("stream", "purge", "TOUR", "--keep", "1", "-f").out == "purged 2 records of TOUR\n"
    assert len(rows(cli("stream", "report", "--json"))) == 2
    for name in ("TOUR", "TOUR2"):
        assert cli("stream", "rm", name, "-f").code == 0


def test_what_removes_something_asks_first(cli: Terminal) -> None:
    cli("stream", "add", "KEEP", "keep.>")
    refused = cli("stream", "rm", "KEEP")
    assert refused.code == 2
    assert "pass --force" in refused.err
    assert one(cli("stream", "info", "KEEP", "--json"))["config"]["name"] == "KEEP"
    wrong = cli("stream", "add", "KEEP", "other.>")
    assert wrong.code == 1
    assert "10058" in wrong.err
    cli("stream", "rm", "KEEP", "-f")


def test_consumers(cli: Terminal) -> None:
    cli("stream", "add", "WORK", "work.>")
    cli("pub", "work.eu", "--lines", stdin=b"1\n2\n3\n")
    made = one(cli("consumer", "add", "WORK", "eu", "--filter", "work.eu", "--max-deliver", "5", "--json"))  # fmt: skip # noqa: E501
    assert made["config"]["max_deliver"] == 5
    assert "nobody fetches" in cli("consumer", "info", "WORK", "eu").out
    assert one(cli("consumer", "why", "WORK", "eu", "--json"))["reason"] == "nobody_pulls"
    taken = rows(cli("consumer", "next", "WORK", "eu", "--count", "2", "--json"))
    assert [(each["seq"], each["payload"]) for each in taken] == [(1, "1"), (2, "2")]
    assert rows(cli("consumer", "report", "WORK", "--json"))[0]["num_pending"] == 1
    assert "pauses until" in cli("consumer", "pause", "WORK", "eu", "1h").out
    assert one(cli("consumer", "why", "WORK", "eu", "--json"))["reason"] == "paused"
    assert cli("consumer", "resume", "WORK", "eu").out == "eu of WORK delivers again\n"
    assert cli("consumer", "reset", "WORK", "eu", "--seq", "1", "-f").code == 0
    assert one(cli("consumer", "next", "WORK", "eu", "--json"))["seq"] == 1
    assert cli("consumer", "edit", "WORK", "eu", "--max-pending", "7", "-f").out == "changed eu of WORK\n"  # fmt: skip # noqa: E501
    cli("consumer", "add", "WORK", "push", "--target", "to.me", "--ack", "none")
    cli("consumer", "add", "WORK", "none", "--filter", "work.nobody")
    assert [row["name"] for row in rows(cli("consumer", "ls", "WORK", "--json"))] == ["eu", "none", "push"]  # fmt: skip # noqa: E501
    refused = cli("consumer", "next", "WORK", "push")
    assert (refused.code, "millstream sub" in refused.err) == (2, True)
    assert cli("consumer", "next", "WORK", "none", "--wait", "50ms").code == 1
    assert cli("consumer", "rm", "WORK", "eu", "-f").out == "removed eu of WORK\n"
    assert "did you mean 'push'" in cli("consumer", "info", "WORK", "pusch").err
    cli("stream", "rm", "WORK", "-f")


def test_buckets(cli: Terminal) -> None:
    absent = cli("kv", "get", "CONF", "a")
    assert absent.code == 1
    assert "`millstream kv add CONF` creates it" in absent.err
    assert cli("kv", "add", "CONF", "--history", "5").out == "created bucket CONF\n"
    assert (
        cli("kv", "put", "CONF", "app.color", "blue").out == "set app.color of CONF, revision 1\n"
    )
    assert cli("kv", "get", "CONF", "app.color").out == "blue\n"
    assert cli("kv", "create", "CONF", "app.color", "red").code == 1
    assert one(cli("kv", "update", "CONF", "app.color", "green", "1", "--json"))["revision"] == 2
    late = cli("kv", "update", "CONF", "app.color", "black", "1")
    assert (late.code, "its revision is 2, not 1" in late.err) == (1, True)
    assert "did you mean 'app.color'" in cli("kv", "get", "CONF", "app.colr").err
    told = rows(cli("kv", "history", "CONF", "app.color", "--json"))
    assert [each["value"] for each in told] == ["blue", "green"]
    assert cli("kv", "revert", "CONF", "app.color", "1", "-f").code == 0
    assert cli("kv", "get", "CONF", "app.color").out == "blue\n"
    seen = rows(cli("kv", "watch", "CONF", "--count", "1", "--json"))
    assert seen[0]["value"] == "blue"
    cli("kv", "put", "CONF", "other", "-", stdin=b"\xff\x00")
    assert cli("kv", "ls", "CONF").out == "app.color\nother\n"
    assert cli("kv", "del", "CONF", "app.color").code == 0
    assert cli("kv", "get", "CONF", "app.color").code == 1
    assert cli("kv", "purge", "CONF", "other", "-f").code == 0
    assert cli("kv", "ls", "CONF").out == ""
    forgot = cli("kv", "compact", "CONF", "--older-than", "0s", "-f")
    assert forgot.out == "forgot 2 deleted keys of CONF\n"
    assert cli("kv", "edit", "CONF", "--history", "9").code == 0
    assert one(cli("kv", "info", "CONF", "--json"))["history"] == 9
    assert rows(cli("kv", "ls", "--json"))[0]["bucket"] == "CONF"
    assert cli("kv", "rm", "CONF", "-f").code == 0


def test_objects(cli: Terminal, tmp_path: Path) -> None:
    body = bytes(range(256)) * 1500
    (tmp_path / "logo.bin").write_bytes(body)
    assert cli("object", "add", "FILES").out == "created object store FILES\n"
    put = cli("object", "put", "FILES", str(tmp_path / "logo.bin"), "--name", "logo")
    assert put.out == "stored logo in FILES: 375.0 KiB in 3 parts\n"
    out = tmp_path / "back.bin"
    assert cli("object", "get", "FILES", "logo", "-O", str(out)).code == 0
    assert out.read_bytes() == body
    assert "did you mean 'logo'" in cli("object", "get", "FILES", "logos").err
    again = cli("object", "put", "FILES", "-", "--name", "logo", stdin=b"small")
    assert "1 parts" in again.out
    assert one(cli("object", "info", "FILES", "logo", "--json"))["size"] == 5
    assert [each["name"] for each in rows(cli("object", "ls", "FILES", "--json"))] == ["logo"]
    assert rows(cli("object", "watch", "FILES", "--count", "1", "--json"))[0]["name"] == "logo"
    assert cli("object", "rm", "FILES", "logo", "-f").code == 0
    assert cli("object", "ls", "FILES").out == "FILES has no objects\n"
    assert cli("object", "seal", "FILES", "-f").out == "sealed FILES\n"
    assert cli("object", "put", "FILES", "-", "--name", "x", stdin=b"x").code == 1
    assert cli("object", "rm", "FILES", "-f").code == 0


def test_schedules_events_and_measures(cli: Terminal) -> None:
    cli("stream", "add", "LATER", "later.>")
    done = cli("schedule", "add", "later.x", "hello", "--every", "1h", "--name", "hourly")
    assert done.code == 0, done.err
    assert rows(cli("schedule", "ls", "--json"))[0]["target"] == "later.x"
    assert "did you mean 'hourly'" in cli("schedule", "rm", "LATER", "hourli", "-f").err
    assert cli("schedule", "rm", "LATER", "hourly", "-f").code == 0
    assert cli("schedule", "ls").out == "nothing is scheduled\n"
    assert cli("schedule", "add", "later.x", "soon", "--in", "10ms").code == 0
    assert cli("schedule", "add", "later.x", "y").code == 2
    cli("stream", "rm", "LATER", "-f")
    assert one(cli("rtt", "--count", "3", "--json"))["count"] == 3
    assert one(cli("latency", "--count", "3", "--json"))["count"] == 3
    assert one(cli("account", "info", "--json"))["streams"] == 0
    assert len(rows(cli("bench", "js", "--msgs", "100", "--json"))) == 3
    assert len(rows(cli("bench", "kv", "--msgs", "50", "--json"))) == 2
    assert cli("server", "check", "connection").out.startswith("OK connection: connected to ")
    lost = cli("server", "check", "stream", "NONE", "--json")
    assert (lost.code, json.loads(lost.out)["status"]) == (2, "CRITICAL")
