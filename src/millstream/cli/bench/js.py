"""``bench js``: a stream's publishes, one after the other and many at a time, and its reads."""

import time
from typing import TYPE_CHECKING

import click

from millstream.cli.access.options import connected, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.bench.core import as_object, line
from millstream.cli.bench.core_runs import Measured
from millstream.cli.command import command
from millstream.client.jetstream.inbox import new_inbox

if TYPE_CHECKING:
    from millstream.client.jetstream.api import JetStreamApi

WINDOW = 256


@command(
    "millstream bench js", "millstream bench js --msgs 20000 --size 1024 --storage memory --json"
)
@click.option("--msgs", default=10_000, show_default=True, type=click.IntRange(min=1))
@click.option("--size", default=128, show_default=True, type=click.IntRange(min=0))
@click.option("--storage", default="file", type=click.Choice(["file", "memory"]), help="Where.")
@connected
@json_option
def js(msgs: int, size: int, storage: str, access: ServerAccess, as_json: bool) -> None:
    """Measure a new stream: publishes with acks, one by one and with 256 under way, then a read.

    The stream is removed at the end.
    """
    name = f"BENCH-{new_inbox()[-8:]}"
    with access.jetstream() as stream:
        config = {"name": name, "subjects": [f"{name}.>"], "storage": storage}
        stream.ask(f"STREAM.CREATE.{name}", config)
        try:
            for measured in (
                _one_by_one(stream, name, max(1, msgs // 20), size),
                _many(stream, name, msgs, size),
                _read(stream, name, size),
            ):
                click.echo(as_object(measured) if as_json else line(measured))
        finally:
            stream.ask(f"STREAM.DELETE.{name}")


def _one_by_one(js: "JetStreamApi", name: str, msgs: int, size: int) -> Measured:
    body, taken = bytes(size), []
    began = time.perf_counter()
    for _ in range(msgs):
        asked = time.perf_counter()
        js.client.request(f"{name}.a", body, js.timeout)
        taken.append(time.perf_counter() - asked)
    return Measured("js pub, sync", msgs, size, time.perf_counter() - began, sorted(taken))


def _many(js: "JetStreamApi", name: str, msgs: int, size: int) -> Measured:
    inbox, body = new_inbox(), bytes(size)
    answers, acked = js.client.subscribe(inbox), 0
    began = time.perf_counter()
    for sent in range(1, msgs + 1):
        js.client.publish(f"{name}.a", body, reply=inbox)
        if sent - acked >= WINDOW:
            answers.next(js.timeout)
            acked += 1
    while acked < msgs:
        answers.next(js.timeout)
        acked += 1
    answers.unsubscribe()
    return Measured("js pub, async", msgs, size, time.perf_counter() - began)


def _read(js: "JetStreamApi", name: str, size: int) -> Measured:
    total = int(js.stream(name)["state"]["messages"])
    inbox = new_inbox()
    incoming = js.client.subscribe(inbox)
    config = {"deliver_subject": inbox, "ack_policy": "none", "inactive_threshold": 10**10}
    began = time.perf_counter()
    js.ask(f"CONSUMER.CREATE.{name}", {"stream_name": name, "config": config})
    for _ in range(total):
        incoming.next(js.timeout)
    return Measured("js read", total, size, time.perf_counter() - began)
