"""``millstream dlq``: look at dead letters, and send them back to their queues."""

import json
import sys
from datetime import UTC, datetime

import click
import msgspec

from millstream.cli.options import http_option, json_option, token_option
from millstream.client.topic_values import Record
from millstream.client.topics import Topics

FROM, TRIES = "$dead_letter_from", "$dead_letter_deliveries"
LONGEST = 80  # of a job's data in one line


@click.group()
def dlq() -> None:
    """Look at dead letters, and send them back to the queues that they came from."""


@dlq.command()
@click.argument("topic", required=False)
@http_option
@token_option
@json_option
def ls(topic: str | None, http_url: str | None, token: str, as_json: bool) -> None:
    """List the jobs in TOPIC, or the topics that queues send their dead letters to."""
    with Topics(http_url, token) as topics:
        if topic is None:
            _show_topics(topics, as_json)
        else:
            _show_letters(topics, topic, as_json)


@dlq.command()
@click.argument("topic")
@click.option("--seq", "seqs", type=int, multiple=True, help="Only this one; repeatable.")
@click.option("--max", "most", type=click.IntRange(1), help="At most so many, oldest first.")
@click.option("--to", help="Another queue than the one that each came from.")
@http_option
@token_option
def replay(
    topic: str,
    seqs: tuple[int, ...],
    most: int | None,
    to: str | None,
    http_url: str | None,
    token: str,
) -> int:
    """Send the jobs of TOPIC back to their queues, as new as they first were."""
    sent: dict[str, int] = {}
    with Topics(http_url, token) as topics:
        letters = topics.topic(topic)
        while True:
            left = None if most is None else most - sum(sent.values())
            if left == 0:
                break
            done = letters.redrive(*seqs, most=left, to=to)
            for name, count in done.to.items():
                sent[name] = sent.get(name, 0) + count
            if seqs or not done.redriven:
                break
    for name, count in sorted(sent.items()):
        click.echo(f"{count} → {name}")
    if done.skipped:
        click.echo(
            f"{len(done.skipped)} left in {topic}: no such record, or its queue is gone", err=True
        )
    if not sent and not done.skipped:
        click.echo(f"{topic} holds no dead letters")
    return 1 if done.skipped else 0


def _show_topics(topics: Topics, as_json: bool) -> None:
    found: dict[str, list[str]] = {}
    for each in topics.list():
        target = topics.topic(each["topic"]).state().config["dead_letter"]
        if target is not None:
            found.setdefault(target, []).append(each["topic"])
    known = {each["topic"]: each["count"] for each in topics.list()}
    for name, queues in sorted(found.items()):
        if as_json:
            click.echo(json.dumps({"topic": name, "count": known.get(name, 0), "from": queues}))
        else:
            click.echo(f"{name}   {known.get(name, 0)}   from {', '.join(queues)}")
    if not found and not as_json:
        click.echo("no queue names a dead_letter topic")


def _show_letters(topics: Topics, topic: str, as_json: bool) -> None:
    for record in topics.topic(topic).diff(on_gap=lambda gap: None):
        meta = record.meta if isinstance(record.meta, dict) else {}
        if as_json:
            about = {"seq": record.seq, "ts": record.ts, "from": meta.get(FROM)}
            line = msgspec.json.encode({**about, "tries": meta.get(TRIES), "data": record.text})
            sys.stdout.buffer.write(line + b"\n")
        else:
            click.echo(_line(record, meta))
    sys.stdout.flush()


def _line(record: Record, meta: dict[str, object]) -> str:
    when = datetime.fromtimestamp(record.ts / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    text = bytes(record.text).decode("utf-8", "replace")
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    return f"{record.seq}   {when}   {meta.get(FROM, '?')}   {meta.get(TRIES, '?')} tries   {text}"
