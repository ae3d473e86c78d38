"""``bench http``: writes and reads of a topic over HTTP."""

import time
from typing import TYPE_CHECKING

import click

from millstream.cli.access.options import json_option, over_http
from millstream.cli.access.server import ServerAccess
from millstream.cli.bench.core import as_object, line
from millstream.cli.bench.core_runs import Measured
from millstream.cli.command import command
from millstream.client.jetstream.inbox import new_inbox

if TYPE_CHECKING:
    from millstream.client.topics import Topic

BATCH = 500


@command("millstream bench http", "millstream bench http --msgs 20000 --durability fsync --json")
@click.option("--msgs", default=5_000, show_default=True, type=click.IntRange(min=1))
@click.option("--size", default=128, show_default=True, type=click.IntRange(min=0))
@click.option("--durability", default="fsync", type=click.Choice(["fsync", "disk", "memory"]))
@over_http
@json_option
def http_(msgs: int, size: int, durability: str, access: ServerAccess, as_json: bool) -> None:
    """Measure a new topic: single writes, batches of 500, then a read. It is removed at the end."""
    name = f"bench-{new_inbox()[-8:]}"
    with access.topics() as topics:
        topic = topics.topic(name)
        topic.put(durability=durability)
        try:
            for measured in (
                _single(topic, max(1, msgs // 20), size),
                _batches(topic, msgs, size),
                _read(topic, size),
            ):
                click.echo(as_object(measured) if as_json else line(measured))
        finally:
            topic.delete()


def _single(topic: "Topic", msgs: int, size: int) -> Measured:
    body, taken = "x" * size, []
    began = time.perf_counter()
    for _ in range(msgs):
        asked = time.perf_counter()
        topic.append(body)
        taken.append(time.perf_counter() - asked)
    return Measured("http write", msgs, size, time.perf_counter() - began, sorted(taken))


def _batches(topic: "Topic", msgs: int, size: int) -> Measured:
    body = "x" * size
    began = time.perf_counter()
    for at in range(0, msgs, BATCH):
        topic.append(*[body] * min(BATCH, msgs - at))
    return Measured("http batches", msgs, size, time.perf_counter() - began)


def _read(topic: "Topic", size: int) -> Measured:
    began = time.perf_counter()
    count = sum(1 for _ in topic.diff())
    return Measured("http read", count, size, time.perf_counter() - began)
