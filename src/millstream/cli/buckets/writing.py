"""``kv put``, ``create``, ``update``, ``del``, ``purge``, ``revert`` and ``compact``."""

from datetime import UTC, datetime

import click

from millstream.cli.access.options import connected, force_option, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.buckets.bucket import OPERATION, WRONG_LAST, Bucket, operation_of, value_of
from millstream.cli.command import command
from millstream.cli.options import read_payload
from millstream.cli.shown import figures
from millstream.cli.shown.figures import DURATION
from millstream.cli.shown.output import sure, tell
from millstream.client.jetstream.api import JetStreamRefused

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
ROLLUP = {"Nats-Rollup": "sub", OPERATION: "PURGE"}


def _told(bucket: str, key: str, revision: int, as_json: bool, done: str = "set") -> None:
    told = {"bucket": bucket, "key": key, "revision": revision}
    tell(told, as_json, f"{done} {key} of {bucket}, revision {revision}")


@command(
    "millstream kv put CONFIG app.color blue", "millstream kv put CONFIG app.logo - < logo.png"
)
@click.argument("bucket")
@click.argument("key")
@click.argument("value", required=False)
@connected
@json_option
def put(bucket: str, key: str, value: str | None, access: ServerAccess, as_json: bool) -> None:
    """Set KEY of BUCKET to VALUE, or to standard input."""
    body = read_payload(value)
    with access.jetstream() as js:
        revision = Bucket(js, bucket).write(key, body)
    _told(bucket, key, revision, as_json)


@command("millstream kv create CONFIG app.color blue")
@click.argument("bucket")
@click.argument("key")
@click.argument("value", required=False)
@connected
@json_option
def create(bucket: str, key: str, value: str | None, access: ServerAccess, as_json: bool) -> None:
    """Set KEY of BUCKET to VALUE, if it has no value; else exit with 1."""
    body = read_payload(value)
    with access.jetstream() as js:
        known = Bucket(js, bucket)
        last = known.last(key)
        if last is not None and operation_of(last) == "put":
            raise click.ClickException(f"{key} has a value already, revision {last['seq']}")
        expected = 0 if last is None else int(last["seq"])
        revision = _write_if(known, key, body, expected)
    _told(bucket, key, revision, as_json, "created")


@command("millstream kv update CONFIG app.color green 17")
@click.argument("bucket")
@click.argument("key")
@click.argument("value")
@click.argument("revision", type=click.IntRange(min=0))
@connected
@json_option
def update(
    bucket: str, key: str, value: str, revision: int, access: ServerAccess, as_json: bool
) -> None:
    """Set KEY of BUCKET to VALUE, if REVISION is still its last; else exit with 1."""
    body = read_payload(value)
    with access.jetstream() as js:
        made = _write_if(Bucket(js, bucket), key, body, revision)
    _told(bucket, key, made, as_json)


def _write_if(bucket: Bucket, key: str, body: bytes, expected: int) -> int:
    try:
        return bucket.write(key, body, {EXPECTED: str(expected)})
    except JetStreamRefused as error:
        if error.err_code != WRONG_LAST:
            raise
        last = bucket.last(key)
        now = "none" if last is None else str(last["seq"])
        raise click.ClickException(
            f"{key} has changed meanwhile: its revision is {now}, not {expected}"
        ) from None


@command("millstream kv del CONFIG app.color")
@click.argument("bucket")
@click.argument("key")
@force_option
@connected
@json_option
def del_(bucket: str, key: str, force: bool, access: ServerAccess, as_json: bool) -> None:
    """Delete KEY of BUCKET; its history stays."""
    with access.jetstream() as js:
        known = Bucket(js, bucket)
        _must_be_there(known, key)
        revision = known.write(key, b"", {OPERATION: "DEL"})
    _told(bucket, key, revision, as_json, "deleted")


@command("millstream kv purge CONFIG app.color --force")
@click.argument("bucket")
@click.argument("key")
@force_option
@connected
@json_option
def purge(bucket: str, key: str, force: bool, access: ServerAccess, as_json: bool) -> None:
    """Delete KEY of BUCKET with its history."""
    with access.jetstream() as js:
        known = Bucket(js, bucket)
        _must_be_there(known, key)
        sure(f"Delete {key} of {bucket} with its history?", force)
        revision = known.write(key, b"", ROLLUP)
    _told(bucket, key, revision, as_json, "purged")


def _must_be_there(bucket: Bucket, key: str) -> None:
    if bucket.last(key) is None:
        raise no_key(bucket, key)


def no_key(bucket: Bucket, key: str) -> click.ClickException:
    """Return what somebody is told who names a key that has no value."""
    from millstream.cli.shown.near import hint

    known = bucket.keys()
    return click.ClickException(f"{bucket.name} has no key {key!r}{hint(key, known)}")


@command("millstream kv revert CONFIG app.color 17")
@click.argument("bucket")
@click.argument("key")
@click.argument("revision", type=click.IntRange(min=1))
@force_option
@connected
@json_option
def revert(
    bucket: str, key: str, revision: int, force: bool, access: ServerAccess, as_json: bool
) -> None:
    """Set KEY of BUCKET to the value that it had at REVISION."""
    with access.jetstream() as js:
        known = Bucket(js, bucket)
        known.info()
        record = js.message(known.stream, seq=revision)
        if record is None or record["subject"] != known.subject(key):
            raise click.ClickException(
                f"{key} has no revision {revision} any more: `millstream kv history {bucket} {key}`"
            )
        sure(f"Set {key} of {bucket} back to revision {revision}?", force)
        made = known.write(key, value_of(record))
    _told(bucket, key, made, as_json, "reverted")


@command("millstream kv compact CONFIG --older-than 30m --force")
@click.argument("bucket")
@click.option(
    "--older-than", type=DURATION, default="30m", show_default=True, help="Younger traces stay."
)
@force_option
@connected
@json_option
def compact(bucket: str, older_than: int, force: bool, access: ServerAccess, as_json: bool) -> None:
    """Forget the traces that deleted keys of BUCKET have left."""
    with access.jetstream() as js:
        known = Bucket(js, bucket)
        known.info()
        sure(f"Forget the deleted keys of {bucket}?", force)
        gone = 0
        for subject in {each["subject"] for each in known.records(">")}:
            last = js.message(known.stream, last_by_subj=subject)
            if last is None or operation_of(last) == "put" or _age(last["time"]) < older_than:
                continue
            js.ask(f"STREAM.PURGE.{known.stream}", {"filter": subject})
            gone += 1
    tell({"bucket": bucket, "keys": gone}, as_json, f"forgot {gone:,} deleted keys of {bucket}")


def _age(when: str) -> float:
    return (datetime.now(UTC) - figures.read_moment(when)).total_seconds() * 1e9
