"""``millstream dlq``: look at dead letters, and send them back to where they came from."""

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import click
import msgspec

from millstream.cli.access.options import json_option, over_http
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import Command
from millstream.cli.shown.progress import ProgressLine
from millstream.client.errors import ApiError
from millstream.client.topic_values import Record
from millstream.client.topics import Topic, Topics

FROM, TRIES = "$dead_letter_from", "$dead_letter_deliveries"
CONSUMER, REASON = "$dead_letter_consumer", "$dead_letter_reason"
REASONS = {
    "no_queue": "whose queue or stream is gone, or not this key's to write to (--to names another)",
    "no_letter": "that came from no queue or consumer",
    "no_record": "that are not there",
    "under_way": "that somebody else is sending back",
    "topic_full": "whose queue is full",
}
LONGEST = 80  # of a job's data in one line


class _Place(NamedTuple):
    """A topic of letters, and where they must have come from, None for anywhere."""

    topic: str
    origin: str | None


@click.group()
def dlq() -> None:
    """Look at dead letters, and send them back to the queues and streams that they came from."""


@dlq.command(
    cls=Command,
    examples=("millstream dlq ls", "millstream dlq ls jobs --json"),
)
@click.argument("name", required=False)
@over_http
@json_option
def ls(name: str | None, access: ServerAccess, as_json: bool) -> None:
    """List dead letters, or the topics that queues and consumers send them to.

    NAME is a topic of dead letters, or a queue or stream whose dead letters to list.
    """
    with access.topics() as topics:
        if name is None:
            _show_topics(topics, as_json)
            return
        places = _letters_of(topics, name)
        if not sum(_show_letters(topics, each, name, as_json) for each in places) and not as_json:
            click.echo(_none(topics, name, places))


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
@click.option("--to", help="Send all to this queue or stream instead of their own.")
@over_http
def replay(
    name: str,
    seqs: tuple[int, ...],
    most: int | None,
    to: str | None,
    access: ServerAccess,
) -> int:
    """Send dead letters back, with their deliveries counted from 0.

    NAME is a topic of dead letters, or a queue or stream whose dead letters to send back. A letter
    of a consumer comes back as a new record of its stream, under the subject that it had.
    """
    sent: dict[str, int] = {}
    is_left = False
    with access.topics() as topics:
        places = _letters_of(topics, name)
        for place in places:
            left = None if most is None else most - sum(sent.values())
            if left != 0:
                is_left |= _replay_one(topics, place, name, seqs, left, to, sent)
        nothing = "" if sent or is_left else _none(topics, name, places)
    for target, count in sorted(sent.items()):
        click.echo(f"{count} → {target}")
    if nothing:
        click.echo(nothing)
    return 1 if is_left else 0


def _replay_one(
    topics: Topics,
    place: _Place,
    name: str,
    seqs: tuple[int, ...],
    most: int | None,
    to: str | None,
    sent: dict[str, int],
) -> bool:
    """Send the letters of one topic back, and say which stay; returns whether some do."""
    why: dict[str, int] = {}
    try:
        state = topics.topic(place.topic).state()
        with ProgressLine("sending back", len(seqs) or most or state.count) as line:
            _replay(topics.topic(place.topic), place.origin, seqs, most, to, sent, why, line.add)
    except ApiError as error:
        if error.code != "topic_not_found" or place.topic == name:
            raise  # else its first letter would make the topic
    if why:
        reasons = ", ".join(f"{count} {REASONS.get(each, each)}" for each, count in why.items())
        click.echo(f"{sum(why.values())} left in {place.topic}: {reasons}", err=True)
    return bool(why)


def _none(topics: Topics, name: str, places: list[_Place]) -> str:
    """Say that there are no letters, and why there never are any."""
    state = topics.topic(name).state()
    config = state.config
    if state.type == "queue" and not (config["dead_letter"] and config["max_deliveries"]):
        lacks = "no dead_letter topic" if not config["dead_letter"] else "no max_deliveries"
        return (
            f"{name} has {lacks}: its jobs are never given up. `millstream queue edit {name} "
            f"--max-deliveries 3 --dead-letter {name}-dead` changes that"
        )
    own = [each for each in _consumers(topics) if each["stream_name"] == name]
    if state.type != "queue" and own and places == [_Place(name, None)]:
        return (
            f"{name} has no dead letters, and no consumer of it keeps any: `millstream consumer "
            f"edit {name} {own[0]['name']} --max-deliver 5 --dead-letter {name}-DEAD` changes that"
        )
    return f"{name} has no dead letters"


def _consumers(topics: Topics) -> list[dict[str, object]]:
    try:
        return list(topics.consumers())
    except ApiError as error:
        if error.status in (403, 404):  # a key that sees topics only, or a server without them
            return []
        raise


def _target(consumer: dict[str, object]) -> str:
    """Return where a consumer's letters go, empty where it keeps none."""
    config = consumer.get("config")
    metadata = config.get("metadata") if isinstance(config, dict) else None
    return str((metadata or {}).get("millstream.dead_letter") or "")


def _letters_of(topics: Topics, name: str) -> list[_Place]:
    """Return the topics of letters that are meant, and what the letters must have come from."""
    found = [topics.topic(name).state().config["dead_letter"] or ""]
    found += [_target(each) for each in _consumers(topics) if each["stream_name"] == name]
    places = [_Place(each, name) for each in sorted(set(found)) if each]
    return places or [_Place(name, None)]


def _replay(
    letters: Topic,
    origin: str | None,
    seqs: tuple[int, ...],
    most: int | None,
    to: str | None,
    sent: dict[str, int],
    why: dict[str, int],
    progress: Callable[[int], None],
) -> None:
    """Send letters back, a call at a time; adds up how many went where, and why others did not."""
    before, position = sum(sent.values()), 0
    while True:
        gone = sum(sent.values()) - before
        left = None if most is None else most - gone
        done = letters.redrive(*seqs, most=left, to=to, origin=origin, from_seq=position)
        for told, sums in ((done.to, sent), (done.why, why)):
            for each, count in told.items():
                sums[each] = sums.get(each, 0) + count
                progress(count)
        is_enough = most is not None and sum(sent.values()) - before >= most
        if seqs or is_enough or done.next_from_seq is None:
            return
        position = done.next_from_seq


def _show_topics(topics: Topics, as_json: bool) -> None:
    found: dict[str, set[str]] = {}
    for each in topics.list():
        target = topics.topic(each["topic"]).state().config["dead_letter"]
        if target is not None:
            found.setdefault(target, set()).add(each["topic"])
    for consumer in _consumers(topics):
        if target := _target(consumer):
            whose = f"{consumer['stream_name']} ({consumer['name']})"
            found.setdefault(target, set()).add(whose)
    known = {each["topic"]: each["count"] for each in topics.list()}
    for name, origins in sorted(found.items()):
        if as_json:
            told = {"topic": name, "count": known.get(name, 0), "from": sorted(origins)}
            click.echo(json.dumps(told))
        else:
            click.echo(f"{name}   {known.get(name, 0)}   from {', '.join(sorted(origins))}")
    if not found and not as_json:
        click.echo("no queue or consumer names a place for dead letters")


def _show_letters(topics: Topics, place: _Place, name: str, as_json: bool) -> int:
    """Print the letters that are meant; returns how many there are."""
    count = 0
    try:
        for record in topics.topic(place.topic).diff(on_gap=lambda gap: None):
            meta = record.meta if isinstance(record.meta, dict) else {}
            if place.origin is None or meta.get(FROM) == place.origin:
                count += 1
                _show_letter(record, meta, as_json)
    except ApiError as error:
        if error.code != "topic_not_found" or place.topic == name:
            raise  # else its first letter would make the topic
    sys.stdout.flush()
    return count


def _show_letter(record: Record, meta: dict[str, object], as_json: bool) -> None:
    if not as_json:
        click.echo(_line(record, meta))
        return
    about = {"seq": record.seq, "ts": record.ts, "from": meta.get(FROM)}
    about |= {"consumer": meta[CONSUMER], "reason": meta.get(REASON)} if CONSUMER in meta else {}
    line = msgspec.json.encode({**about, "tries": meta.get(TRIES), "data": record.text})
    sys.stdout.buffer.write(line + b"\n")


def _line(record: Record, meta: dict[str, object]) -> str:
    when = datetime.fromtimestamp(record.ts / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    text = bytes(record.text).decode("utf-8", "replace")
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    tries = meta.get(TRIES, "?")
    counted = "1 try" if tries == "1" else f"{tries} tries"
    whose = str(meta.get(FROM, "?"))
    if CONSUMER in meta:
        whose, counted = f"{whose} ({meta[CONSUMER]})", f"{meta.get(REASON)}, {counted}"
    return f"{record.seq}   {when}   {whose}   {counted}   {text}"
