"""``millstream dlq`` against a real server."""

import json
from collections.abc import Iterator

import pytest

from millstream.cli import main
from millstream.client.topic_values import Job
from millstream.client.topics import Topics
from support.broker import millstream
from support.peers import Peer


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    with millstream() as running:
        yield running


def test_dead_letters_are_listed_and_sent_back(
    peer: Peer, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://{peer.host}:{peer.http_port}"
    with Topics(url) as topics:
        jobs = topics.topic("jobs")
        jobs.put(type="queue", max_deliveries=1, dead_letter="jobs.dead")
        jobs.append({"n": 1}, "x" * 200)

        @jobs.worker(concurrency=2)
        def fail(job: Job) -> None:
            raise ValueError

        while jobs.state().count:  # a job comes again after a while, and goes when it is claimed
            fail.run(until_empty=True)

    assert main.run(["dlq", "ls", "--http-url", url]) == 0
    assert capsys.readouterr().out == "jobs.dead   2   from jobs\n"
    assert main.run(["dlq", "ls", "jobs.dead", "--http-url", url]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith('jobs   1 try   {"n":1}')
    assert second.endswith("…")
    assert main.run(["dlq", "ls", "jobs.dead", "--json", "--http-url", url]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (told["seq"], told["from"], told["data"]) == (1, "jobs", {"n": 1})
    assert main.run(["dlq", "replay", "jobs.dead", "--seq", "1", "--http-url", url]) == 0
    assert capsys.readouterr().out == "1 → jobs\n"
    assert main.run(["dlq", "replay", "jobs.dead", "--http-url", url]) == 0
    assert capsys.readouterr().out == "1 → jobs\n"
    assert main.run(["dlq", "replay", "jobs.dead", "--http-url", url]) == 0
    assert capsys.readouterr().out == "jobs.dead has no dead letters\n"
    assert main.run(["dlq", "replay", "jobs.dead", "--seq", "9", "--http-url", url]) == 1
    assert "1 left in jobs.dead" in capsys.readouterr().err


def test_a_queue_is_replayed_by_its_own_name(
    peer: Peer, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://{peer.host}:{peer.http_port}"
    with Topics(url) as topics:
        for name in ("bills", "mails"):
            bury(topics, name, 1, 2)
        topics.topic("fresh").put(type="queue", max_deliveries=1, dead_letter="fresh.dead")
    assert main.run(["dlq", "replay", "bills", "--http-url", url]) == 0
    assert capsys.readouterr().out == "2 → bills\n"
    assert main.run(["dlq", "replay", "mails", "--max", "1", "--http-url", url]) == 0
    assert capsys.readouterr().out == "1 → mails\n"
    for name in ("bills", "fresh"):
        assert main.run(["dlq", "replay", name, "--http-url", url]) == 0
        assert capsys.readouterr().out == f"{name} has no dead letters\n"


def test_a_queues_letters_are_listed_by_its_own_name(
    peer: Peer, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://{peer.host}:{peer.http_port}"
    with Topics(url) as topics:
        bury(topics, "ours", "a", dead="shared")
        bury(topics, "theirs", "b", dead="shared")
        topics.topic("ours").append("still to be done")
        topics.topic("unharmed").put(type="queue", max_deliveries=1, dead_letter="never.made")
    assert main.run(["dlq", "ls", "ours", "--http-url", url]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith('ours   1 try   "a"')
    assert main.run(["dlq", "ls", "shared", "--http-url", url]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main.run(["dlq", "ls", "unharmed", "--http-url", url]) == 0
    assert capsys.readouterr().out == "unharmed has no dead letters\n"
    assert main.run(["dlq", "ls", "unharmed", "--json", "--http-url", url]) == 0
    assert capsys.readouterr().out == ""
    assert main.run(["dlq", "ls", "no-such", "--http-url", url]) == 1
    assert "no topic named no-such" in capsys.readouterr().err


def test_letters_that_cannot_go_hide_none_that_can(
    peer: Peer, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://{peer.host}:{peer.http_port}"
    with Topics(url) as topics:
        bury(topics, "away", *range(3), dead="mixed")
        bury(topics, "there", *range(2), dead="mixed")
        topics.topic("mixed").append("by hand")
        topics.topic("away").delete()
    assert main.run(["dlq", "replay", "mixed", "--max", "1", "--http-url", url]) == 1
    told = capsys.readouterr()
    assert told.out == "1 → there\n"
    assert told.err.startswith("3 left in mixed: 3 whose queue or stream is gone")
    assert main.run(["dlq", "replay", "mixed", "--http-url", url]) == 1
    told = capsys.readouterr()
    assert told.out == "1 → there\n"
    assert told.err.startswith("4 left in mixed: 3 whose queue or stream is gone")
    assert told.err.endswith(", 1 that came from no queue or consumer\n")


def bury(topics: Topics, name: str, *data: object, dead: str = "letters") -> None:
    """Let jobs of a queue fail until they are dead letters."""
    queue = topics.topic(name)
    queue.put(type="queue", max_deliveries=1, dead_letter=dead)
    queue.append(*data)
    for _ in range(2):
        queue.nack("w", *queue.claim("w", 100))
    assert queue.state().count == 0
