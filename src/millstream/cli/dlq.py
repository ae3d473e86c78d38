"""``millstream dlq``: look at dead letters, and send them back to their queues."""

import json
import sys
from datetime import UTC, datetime

import click
import msgspec

from millstream.cli.access.options import json_option, over_http
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import Command
from millstream.client.errors import ApiError
from millstream.client.topic_values import Record
from millstream.client.topics import Topic, Topics

FROM, TRIES = "$dead_letter_from", "$dead_letter_deliveries"
REASONS = {
    "no_queue": "whose queue is gone, or not this key's to write to (--to names another)",
    "no_letter": "that came from no queue",
    "no_record": "that are not there",
    "under_way": "that somebody else is sending back",
    "topic_full": "whose queue is full",
}
LONGEST = 80  # of a job's data in one line


@click.group()
def dlq() -> None:
    """Look at dead letters, and send them back to the queues that they came from."""


@dlq.command(
    cls=Command,
    examples=("millstream dlq ls", "millstream dlq ls jobs --json"),
)
@click.argument("name", required=False)
@over_http
@json_option
def ls(name: str | None, access: ServerAccess, as_json: bool) -> None:
    """List dead letters, or the topics that queues send them to.

    NAME is a topic of dead letters, or a queue whose dead letters to list.
    """
    with access.topics() as topics:
        if name is None:
            _show_topics(topics, as_json)
        elif not _show_letters(topics, name, as_json) and not as_json:
            click.echo(_none(topics, name))


@dlq.command(
    cls=Command,
    examples=("millstream dlq replay jobs", "millstream dlq replay jobs --seq 57"),
)
@click.argument("name")
@click.option(
    "--seq", "seqs", type=int, multiple=True, help="Only the letter with this sequence; repeatable."
)
@click.option(
    "--max", "most", type=click.IntRange(1), help="At most this many letters, oldest first."
)
@click.option("--to", help="Send all to this queue instead of their own.")
@over_http
def replay(
    name: str,
    seqs: tuple[int, ...],
    most: int | None,
    to: str | None,
    access: ServerAccess,
) -> int:
    """Send dead letters back to their queues, with their deliveries counted from 0.

    NAME is a topic of dead letters, or a queue whose dead letters to send back.
    """
    with access.topics() as topics:
        topic, origin = _letters_of(topics, name)
        try:
            sent, why = _replay(topics.topic(topic), origin, seqs, most, to)
        except ApiError as error:
            if error.code != "topic_not_found" or topic == name:
                raise
            sent, why = {}, {}  # its first letter would make the topic
        nothing = "" if sent or why else _none(topics, name)
    for queue, count in sorted(sent.items()):
        click.echo(f"{count} → {queue}")
    if why:
        reasons = ", ".join(f"{count} {REASONS.get(each, each)}" for each, count in why.items())
        click.echo(f"{sum(why.values())} left in {topic}: {reasons}", err=True)
    elif not sent:
        click.echo(nothing)
    return 1 if why else 0


def _none(topics: Topics, name: str) -> str:
    """Say that there are no letters, and why a queue never has any."""
    state = topics.topic(name).state()
    if state.type != "queue" or (state.config["dead_letter"] and state.config["max_deliveries"]):
        return f"{name} has no dead letters"
    lacks = "no dead_letter topic" if not state.config["dead_letter"] else "no max_deliveries"
    return (
        f"{name} has {lacks}: its jobs are never given up. `millstream queue edit {name} "
        f"--max-deliveries 3 --dead-letter {name}-dead` changes that"
    )


def _letters_of(topics: Topics, name: str) -> tuple[str, str | None]:
    """Return the topic of letters that is meant, and the queue that they must have come from."""
    target = topics.topic(name).state().config["dead_letter"]
    return (name, None) if target is None else (target, name)


def _replay(
    letters: Topic, origin: str | None, seqs: tuple[int, ...], most: int | None, to: str | None
) -> tuple[dict[str, int], dict[str, int]]:
    """Send letters back, a call at a time; returns how many went where, and why others did not."""
    sent: dict[str, int] = {}
    why: dict[str, int] = {}
    position = 0
    while True:
        left = None if most is None else most - sum(sent.values())
        done = letters.redrive(*seqs, most=left, to=to, origin=origin, from_seq=position)
        for told, sums in ((done.to, sent), (done.why, why)):
            for each, count in told.items():
                sums[each] = sums.get(each, 0) + count
        is_enough = most is not None and sum(sent.values()) >= most
        if seqs or is_enough or done.next_from_seq is None:
            return sent, why
        position = done.next_from_seq


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


def _show_letters(topics: Topics, name: str, as_json: bool) -> int:
    """Print the letters that are meant; returns how many there are."""
    topic, origin = _letters_of(topics, name)
    count = 0
    try:
        for record in topics.topic(topic).diff(on_gap=lambda gap: None):
            meta = record.meta if isinstance(record.meta, dict) else {}
            if origin is None or meta.get(FROM) == origin:
                count += 1
                _show_letter(record, meta, as_json)
    except ApiError as error:
        if error.code != "topic_not_found" or topic == name:
            raise  # else its first letter would make the topic
    sys.stdout.flush()
    return count


def _show_letter(record: Record, meta: dict[str, object], as_json: bool) -> None:
    if not as_json:
        click.echo(_line(record, meta))
        return
    about = {"seq": record.seq, "ts": record.ts, "from": meta.get(FROM)}
    line = msgspec.json.encode({**about, "tries": meta.get(TRIES), "data": record.text})
    sys.stdout.buffer.write(line + b"\n")


def _line(record: Record, meta: dict[str, object]) -> str:
    when = datetime.fromtimestamp(record.ts / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    text = bytes(record.text).decode("utf-8", "replace")
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    tries = meta.get(TRIES, "?")
    counted = "1 try" if tries == "1" else f"{tries} tries"
    return f"{record.seq}   {when}   {meta.get(FROM, '?')}   {counted}   {text}"
