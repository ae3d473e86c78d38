"""``millstream work``: run a command for each job of a queue."""

import os
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import click

from millstream.cli.options import http_option, token_option
from millstream.client import ClientError
from millstream.client.topic_values import Job
from millstream.client.topics import Topic, Topics

RETRY_MS = 30_000  # a failed job that is never given up comes again after this
NAMED = 3  # jobs that the summary names one by one
_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as one node works on it."""

    topic: Topic
    node: str
    lease_ms: int
    max_deliveries: int
    dead_letter: str | None

    @property
    def gives_up(self) -> bool:
        """Whether jobs that keep failing end somewhere."""
        return self.max_deliveries > 0 and self.dead_letter is not None


@dataclass(slots=True)
class Tally:
    """What became of the jobs, by sequence."""

    leased: set[int] = field(default_factory=set)
    acked: int = 0
    given_up: dict[int, str] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    lost: int = 0

    def lines(self, queue: Queue) -> str:
        """Return the summary; what did not happen is left out."""
        parts = [f"{len(self.leased)} leased", f"{self.acked} acked"]
        if self.given_up:
            parts.append(f"{len(self.given_up)} dead-lettered{_named(self.given_up)}")
        if self.failed:
            parts.append(f"{len(self.failed)} failed{_named(self.failed)}")
        if self.lost:
            parts.append(f"{self.lost} took longer than the lease")
        text = "   ".join(parts)
        return f"{text}   → {queue.dead_letter}" if self.given_up else text


def _named(jobs: dict[int, str]) -> str:
    shown = [f"seq {seq}: {why}" for seq, why in list(jobs.items())[:NAMED]]
    more = ["…"] if len(jobs) > NAMED else []
    return f" ({'; '.join(shown + more)})"


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("queue")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@http_option
@click.option("--node", help="Name of this worker.  [default: host and process id]")
@token_option
@click.option("--follow", is_flag=True, help="Wait for more jobs instead of ending.")
def work(
    queue: str,
    command: tuple[str, ...],
    http_url: str | None,
    node: str | None,
    token: str,
    follow: bool,
) -> int:
    """Run COMMAND for each job of QUEUE, its data on standard input.

    Exit code 0 finishes the job, any other gives it back. Put -- before the command.
    """
    name = node or f"{socket.gethostname()}-{os.getpid()}"
    tally = Tally()
    with Topics(http_url, token) as topics:
        found = _found(topics.topic(queue), name)
        try:
            _work(found, command, tally, follow)
        except KeyboardInterrupt:
            if not follow:
                click.echo(tally.lines(found))
                raise
    click.echo(tally.lines(found))
    return 1 if tally.given_up or tally.failed else 0


def _found(topic: Topic, node: str) -> Queue:
    state = topic.state()
    if state.type != "queue":
        raise ClientError(f"{topic.name} is a log; a queue is created with type queue")
    config = state.config
    return Queue(topic, node, config["lease_ms"], config["max_deliveries"], config["dead_letter"])


def _work(queue: Queue, command: Sequence[str], tally: Tally, follow: bool) -> None:
    while True:
        jobs = queue.topic.claim(queue.node)
        if not jobs:
            if not follow:
                return
            time.sleep(_POLL_SECONDS)
            continue
        job = jobs[0]
        tally.leased.add(job.seq)
        try:
            code = _run(queue, command, job)
        except BaseException:  # interrupted: somebody else can have it at once
            queue.topic.nack(queue.node, job)
            raise
        _answer(queue, job, code, tally)


def _run(queue: Queue, command: Sequence[str], job: Job) -> int:
    """Run the command to its end, keeping the lease alive meanwhile; returns its exit code."""
    about = {
        "MILLSTREAM_QUEUE": queue.topic.name,
        "MILLSTREAM_SEQ": str(job.seq),
        "MILLSTREAM_DELIVERIES": str(job.deliveries),
        "MILLSTREAM_TAG": job.tag,
        "MILLSTREAM_SUBJECT": job.subject,
    }
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, **about})
    payload: bytes | None = job.payload()
    try:
        while True:
            try:
                process.communicate(payload, timeout=queue.lease_ms / 3000)
                return process.returncode
            except subprocess.TimeoutExpired:
                payload = None  # it is being written already
                queue.topic.extend(queue.node, job, lease_ms=queue.lease_ms)
    except BaseException:
        process.terminate()
        process.wait()
        raise


def _answer(queue: Queue, job: Job, code: int, tally: Tally) -> None:
    if code == 0:
        tally.failed.pop(job.seq, None)
        if queue.topic.ack(queue.node, job):
            tally.acked += 1
        else:
            tally.lost += 1
        return
    tries = "1 try" if job.deliveries == 1 else f"{job.deliveries} tries"
    why = f"exit {code}, {tries}"
    queue.topic.nack(queue.node, job, delay_ms=0 if queue.gives_up else RETRY_MS)
    if queue.gives_up and job.deliveries >= queue.max_deliveries:
        tally.failed.pop(job.seq, None)
        tally.given_up[job.seq] = why
    else:
        tally.failed[job.seq] = why
