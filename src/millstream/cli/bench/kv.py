"""``bench kv``: puts and gets of a bucket."""

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


@command("millstream bench kv", "millstream bench kv --msgs 5000 --size 256 --json")
@click.option("--msgs", default=2_000, show_default=True, type=click.IntRange(min=1))
@click.option("--size", default=128, show_default=True, type=click.IntRange(min=0))
@connected
@json_option
def kv(msgs: int, size: int, access: ServerAccess, as_json: bool) -> None:
    """Measure a new bucket: puts and gets, one after the other. It is removed at the end."""
    name = f"bench-{new_inbox()[-8:]}"
    with access.jetstream() as js:
        config = {"name": f"KV_{name}", "subjects": [f"$KV.{name}.>"], "max_msgs_per_subject": 1}
        more = {"allow_direct": True, "allow_rollup_hdrs": True, "discard": "new"}
        js.ask(f"STREAM.CREATE.KV_{name}", {**config, **more})
        try:
            for measured in (_puts(js, name, msgs, size), _gets(js, name, msgs, size)):
                click.echo(as_object(measured) if as_json else line(measured))
        finally:
            js.ask(f"STREAM.DELETE.KV_{name}")


def _puts(js: "JetStreamApi", name: str, msgs: int, size: int) -> Measured:
    return _timed("kv put", js, [f"$KV.{name}.k{n % 1000}" for n in range(msgs)], bytes(size), size)


def _gets(js: "JetStreamApi", name: str, msgs: int, size: int) -> Measured:
    subjects = [f"$JS.API.DIRECT.GET.KV_{name}.$KV.{name}.k{n % 1000}" for n in range(msgs)]
    return _timed("kv get", js, subjects, b"", size)


def _timed(work: str, js: "JetStreamApi", subjects: list[str], body: bytes, size: int) -> Measured:
    taken = []
    began = time.perf_counter()
    for subject in subjects:
        asked = time.perf_counter()
        js.client.request(subject, body, js.timeout)
        taken.append(time.perf_counter() - asked)
    return Measured(work, len(subjects), size, time.perf_counter() - began, sorted(taken))
