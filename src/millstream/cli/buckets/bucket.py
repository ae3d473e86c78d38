"""Bucket: a key-value bucket as the stream that it is, over any NATS server."""

import base64
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from millstream.cli.buckets.backing_stream import BackingStream
from millstream.client.jetstream.api import NO_STREAM, JetStreamApi, JetStreamRefused

if TYPE_CHECKING:
    from millstream.client import Message

PREFIX = "KV_"
OPERATION = "KV-Operation"
WRONG_LAST = 10071
_KEY = re.compile(r"[-/_=.a-zA-Z0-9]+")

Json = dict[str, Any]


class Bucket:
    """Reads and writes the keys of one bucket."""

    def __init__(self, js: JetStreamApi, name: str) -> None:
        self._backing = BackingStream(js, name, PREFIX, "a bucket", "kv add")
        self.js = js
        self.name = name
        self.stream = self._backing.stream

    def info(self) -> Json:
        """Return the stream behind the bucket; names another bucket where there is none."""
        return self._backing.info()

    def subject(self, key: str) -> str:
        """Return the subject of a key."""
        if not _KEY.fullmatch(key) or key.startswith(".") or key.endswith(".") or ".." in key:
            raise click.UsageError(
                f"{key!r} is not a key: letters, digits and - / _ = . make one, no dot at an end"
            )
        return f"$KV.{self.name}.{key}"

    def last(self, key: str) -> Json | None:
        """Return the last record of a key, also one that says that it was deleted."""
        self.subject(key)
        try:
            return self.js.message(self.stream, last_by_subj=f"$KV.{self.name}.{key}")
        except JetStreamRefused as error:
            if error.err_code == NO_STREAM:
                raise self._backing.absent() from None
            raise

    def write(self, key: str, value: bytes, headers: dict[str, str] | None = None) -> int:
        """Write a record of a key; returns its revision."""
        from millstream.client.errors import NoResponders

        try:
            answer = self.js.client.request(self.subject(key), value, self.js.timeout, headers)
        except NoResponders:
            raise self._backing.absent() from None
        return int(revision_of(answer))

    def records(self, subject: str, *, last_only: bool = False) -> Iterator[Json]:
        """Return the records of a subject, the oldest first."""
        wish: Json = {"seq": 1, "next_by_subj": f"$KV.{self.name}.{subject}"}
        while (record := self.js.message(self.stream, **wish)) is not None:
            yield record
            wish["seq"] = int(record["seq"]) + 1

    def keys(self, pattern: str = ">") -> list[str]:
        """Return the keys that have a value, by name."""
        self.info()
        live: dict[str, bool] = {}
        for record in self.records(pattern):
            live[self.key_of(record["subject"])] = operation_of(record) == "put"
        return sorted(key for key, is_live in live.items() if is_live)

    def key_of(self, subject: str) -> str:
        """Return the key of a record."""
        return subject.removeprefix(f"$KV.{self.name}.")


def operation_of(record: Json) -> str:
    """Return what a record did: put, del or purge."""
    from millstream.client.headers import decode

    block = base64.b64decode(record.get("hdrs") or "")
    headers = decode(block)[1] if block else {}
    if "Nats-Marker-Reason" in headers:
        return "purge"
    return headers.get(OPERATION, ["PUT"])[0].lower()


def value_of(record: Json) -> bytes:
    """Return the value of a record."""
    return base64.b64decode(record.get("data") or "")


def revision_of(answer: "Message") -> int:
    """Return the revision that a write got; raises what the server refused."""
    import json

    told = json.loads(answer.payload)
    error = told.get("error")
    if error is None:
        return int(told["seq"])
    raise JetStreamRefused(error.get("code", 500), error.get("err_code", 0), error["description"])
