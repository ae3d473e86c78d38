"""``millstream work``: run a command for each job of a queue."""

import os
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import click

from millstream.client.queues import Job, QueueClient, QueueSettings

RETRY_MS = 30_000  # a failed job that is never given up comes again after this
NAMED = 3  # jobs that the summary names one by one
_POLL_SECONDS = 1.0


@dataclass(slots=True)
class Tally:
    """What became of the jobs, by sequence."""

    leased: set[int] = field(default_factory=set)
    acked: int = 0
    given_up: dict[int, str] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    lost: int = 0

    def lines(self, settings: QueueSettings) -> str:
        """Return the summary; what did not happen is left out."""
        parts = [f"{len(self.leased)} leased", f"{self.acked} acked"]
        if self.given_up:
            parts.append(f"{len(self.given_up)} dead-lettered{_named(self.given_up)}")
        if self.failed:
            parts.append(f"{len(self.failed)} failed{_named(self.failed)}")
        if self.lost:
            parts.append(f"{self.lost} took longer than the lease")
        text = "   ".join(parts)
        return f"{text}   → {settings.dead_letter}" if self.given_up else text


def _named(jobs: dict[int, str]) -> str:
    shown = [f"seq {seq}: {why}" for seq, why in list(jobs.items())[:NAMED]]
    more = ["…"] if len(jobs) > NAMED else []
    return f" ({'; '.join(shown + more)})"


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("queue")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--http-url",
    envvar="MILLSTREAM_HTTP_URL",
    help="Server, as http://host:port.  [default: port 8222 of this machine]",
)
@click.option("--node", help="Name of this worker.  [default: host and process id]")
@click.option("--token", envvar="MILLSTREAM_TOKEN", default="", help="API key.")
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
    with QueueClient(http_url, queue, name, token) as client:
        settings = client.settings()
        try:
            _work(client, settings, queue, command, tally, follow)
        except KeyboardInterrupt:
            if not follow:
                click.echo(tally.lines(settings))
                raise
    click.echo(tally.lines(settings))
    return 1 if tally.given_up or tally.failed else 0


def _work(
    client: QueueClient,
    settings: QueueSettings,
    queue: str,
    command: Sequence[str],
    tally: Tally,
    follow: bool,
) -> None:
    while True:
        job = client.claim()
        if job is None:
            if not follow:
                return
            time.sleep(_POLL_SECONDS)
            continue
        tally.leased.add(job.seq)
        try:
            code = _run(client, settings, queue, command, job)
        except BaseException:  # interrupted: somebody else can have it at once
            client.nack(job)
            raise
        _answer(client, settings, job, code, tally)


def _run(
    client: QueueClient, settings: QueueSettings, queue: str, command: Sequence[str], job: Job
) -> int:
    """Run the command to its end, keeping the lease alive meanwhile; returns its exit code."""
    about = {
        "MILLSTREAM_QUEUE": queue,
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
                process.communicate(payload, timeout=settings.lease_ms / 3000)
                return process.returncode
            except subprocess.TimeoutExpired:
                payload = None  # it is being written already
                client.extend(job, settings.lease_ms)
    except BaseException:
        process.terminate()
        process.wait()
        raise


def _answer(
    client: QueueClient, settings: QueueSettings, job: Job, code: int, tally: Tally
) -> None:
    if code == 0:
        tally.failed.pop(job.seq, None)
        if client.ack(job):
            tally.acked += 1
        else:
            tally.lost += 1
        return
    tries = "1 try" if job.deliveries == 1 else f"{job.deliveries} tries"
    why = f"exit {code}, {tries}"
    limited = settings.max_deliveries > 0 and settings.dead_letter is not None
    client.nack(job, 0 if limited else RETRY_MS)
    if limited and job.deliveries >= settings.max_deliveries:
        tally.failed.pop(job.seq, None)
        tally.given_up[job.seq] = why
    else:
        tally.failed[job.seq] = why
