"""``millstream work``: run a command for each job of a queue."""

import os
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import click
from click.core import ParameterSource

from millstream.cli.access.options import over_http
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command as command_of
from millstream.cli.interrupts import HeldInterrupts
from millstream.client import ClientError
from millstream.client.http_link import shown
from millstream.client.patience import FOLLOWERS_PATIENCE, Patience, is_away
from millstream.client.topic_values import Job
from millstream.client.topics import Topic

RETRY_MS = 30_000  # a failed job that is never given up comes again after this
NAMED = 3  # jobs that the summary names one by one
_POLL_SECONDS = 1.0

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class WorkedQueue:
    """A queue as one node works on it."""

    topic: Topic
    node: str
    lease_ms: int
    max_deliveries: int
    dead_letter: str | None
    replay: str  # the command that sends its dead letters back
    patience: float = 0.0  # seconds for which a server that went away is waited for
    held: HeldInterrupts = field(default_factory=HeldInterrupts)

    @property
    def gives_up(self) -> bool:
        """Whether jobs that keep failing end somewhere."""
        return self.max_deliveries > 0 and self.dead_letter is not None

    def ask(self, verb: Callable[..., Answer], *jobs: Job, **more: int) -> Answer:
        """Claim jobs or answer for one; a server that is away is asked again."""
        patience, told = Patience(self.patience), False
        while True:
            try:
                return verb(self.node, *jobs, **more)
            except ClientError as error:
                self.held.heed()
                pause = patience.pause(error)
                if not told:
                    told = True
                    click.echo(f"millstream: {error} (waiting for it)", err=True)
                time.sleep(pause)


@dataclass(slots=True)
class Tally:
    """What became of the jobs, by sequence."""

    leased: set[int] = field(default_factory=set)
    acked: int = 0
    given_up: dict[int, str] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    lost: int = 0

    def lines(self, queue: WorkedQueue) -> str:
        """Return the summary, and how to replay dead letters; what did not happen is left out."""
        parts = [f"{len(self.leased)} leased", f"{self.acked} acked"]
        if self.given_up:
            parts.append(f"{len(self.given_up)} dead-lettered{_named(self.given_up)}")
        if self.failed:
            parts.append(f"{len(self.failed)} failed{_named(self.failed)}")
        if self.lost:
            parts.append(f"{self.lost} took longer than the lease")
        text = "   ".join(parts)
        return f"{text}   → {queue.replay}" if self.given_up else text


def _named(jobs: dict[int, str]) -> str:
    shown = [f"seq {seq}: {why}" for seq, why in list(jobs.items())[:NAMED]]
    more = ["…"] if len(jobs) > NAMED else []
    return f" ({'; '.join(shown + more)})"


@command_of(
    "millstream work jobs -- ./bill.sh",
    "millstream work jobs --follow -- ./bill.sh",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("queue")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@over_http
@click.option("--node", help="Name of this worker.  [default: host and process id]")
@click.option("--follow", is_flag=True, help="Wait for more jobs instead of ending.")
@click.option(
    "--patience",
    type=click.FloatRange(min=0),
    default=FOLLOWERS_PATIENCE,
    show_default=True,
    help="With --follow: seconds to wait for a server that is away.",
)
def work(
    queue: str,
    command: tuple[str, ...],
    access: ServerAccess,
    node: str | None,
    follow: bool,
    patience: float,
) -> int:
    """Run COMMAND for each job of QUEUE, its data on standard input.

    Exit code 0 finishes the job, any other gives it back. Put -- before the command.
    """
    name = node or f"{socket.gethostname()}-{os.getpid()}"
    tally = Tally()
    with access.topics(patience=patience) as topics:
        found = _found(topics.topic(queue), name, patience if follow else 0.0)
        try:
            _work(found, command, tally, follow)
        except KeyboardInterrupt:
            if not follow:
                click.echo(tally.lines(found))
                raise
    click.echo(tally.lines(found))
    return 1 if tally.given_up or tally.failed else 0


def _found(topic: Topic, node: str, patience: float) -> WorkedQueue:
    state = topic.state()
    if state.type != "queue":
        raise ClientError(f"{topic.name} is a log; a queue is created with type queue")
    config = state.config
    return WorkedQueue(
        *(topic, node, config["lease_ms"], config["max_deliveries"], config["dead_letter"]),
        *(_replay(topic.name), patience),
    )


def _replay(queue: str) -> str:
    """Return the command that sends dead letters back, as somebody who called us can type it."""
    command = [os.environ.get("MILLSTREAM_COMMAND", "millstream"), "dlq", "replay", queue]
    context = click.get_current_context()
    for name, option in (("http_url", "--http-url"), ("tls_ca", "--tls-ca")):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            # An API key in the url is nobody else's to see.
            command += [option, shown(context.params[name])]
    return shlex.join(command)


def _work(queue: WorkedQueue, command: Sequence[str], tally: Tally, follow: bool) -> None:
    """Work until nothing is left, or until interrupted.

    An interrupt waits for an answer that is on its way: who leases or finishes a job without
    hearing of it leaves it to be done again.
    """
    while True:
        with queue.held:
            jobs = queue.ask(queue.topic.claim, lease_ms=queue.lease_ms)
        if not jobs:
            queue.held.heed()
            if not follow:
                return
            time.sleep(_POLL_SECONDS)
            continue
        job = jobs[0]
        tally.leased.add(job.seq)
        try:
            queue.held.heed()
            code = _run(queue, command, job)
        except BaseException:  # interrupted: somebody else can have it at once
            with suppress(ClientError):
                queue.topic.nack(queue.node, job)
            raise
        with queue.held:
            _answer(queue, job, code, tally)
        queue.held.heed()


def _run(queue: WorkedQueue, command: Sequence[str], job: Job) -> int:
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
                _keep(queue, job)
    except BaseException:
        process.terminate()
        process.wait()
        raise


def _keep(queue: WorkedQueue, job: Job) -> None:
    """Keep a job's lease; while the server is away the command goes on without one."""
    try:
        queue.topic.extend(queue.node, job, lease_ms=queue.lease_ms)
    except ClientError as error:
        if not is_away(error):
            raise
        click.echo(f"millstream: the lease of seq {job.seq} was not kept: {error}", err=True)


def _answer(queue: WorkedQueue, job: Job, code: int, tally: Tally) -> None:
    if code == 0:
        tally.failed.pop(job.seq, None)
        if queue.ask(queue.topic.ack, job):
            tally.acked += 1
        else:
            tally.lost += 1
        return
    tries = "1 try" if job.deliveries == 1 else f"{job.deliveries} tries"
    why = f"exit {code}, {tries}"
    queue.ask(queue.topic.nack, job, delay_ms=0 if queue.gives_up else RETRY_MS)
    if queue.gives_up and job.deliveries >= queue.max_deliveries:
        tally.failed.pop(job.seq, None)
        tally.given_up[job.seq] = why
    else:
        tally.failed[job.seq] = why
