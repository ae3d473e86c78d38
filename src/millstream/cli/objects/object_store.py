"""ObjectStore: an object store as the stream that it is, over any NATS server."""

import base64
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import IO, Any

import click

from millstream.cli.buckets.backing_stream import BackingStream
from millstream.cli.buckets.bucket import revision_of
from millstream.client.errors import ClientError, NoResponders
from millstream.client.jetstream.api import JetStreamApi

PREFIX = "OBJ_"
CHUNK = 128 * 1024
PULLED = 32  # parts asked for at a time

Json = dict[str, Any]


class ObjectStore:
    """Reads and writes the objects of one store."""

    def __init__(self, js: JetStreamApi, name: str) -> None:
        self._backing = BackingStream(js, name, PREFIX, "an object store", "object add")
        self.js = js
        self.name = name
        self.stream = self._backing.stream

    def info(self) -> Json:
        """Return the stream behind the store; names another store where there is none."""
        return self._backing.info()

    def meta_subject(self, name: str) -> str:
        """Return the subject of what is known about an object."""
        if not name:
            raise click.UsageError("an object has a name of at least one character")
        return f"$O.{self.name}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"

    def find(self, name: str) -> Json | None:
        """Return what is known about an object, None where it is not there."""
        record = self.js.message(self.stream, last_by_subj=self.meta_subject(name))
        if record is None:
            return None
        about = meta_of(record)
        return None if about.get("deleted") else about

    def must_find(self, name: str) -> Json:
        """Return what is known about an object; names another one where it is not there."""
        self.info()
        about = self.find(name)
        if about is None:
            from millstream.cli.shown.near import hint

            known = [str(each["name"]) for each in self.objects()]
            raise ClientError(f"{self.name} has no object {name!r}{hint(name, known)}")
        return about

    def objects(self) -> Iterator[Json]:
        """Return what is known about every object, by time."""
        wish: Json = {"seq": 1, "next_by_subj": f"$O.{self.name}.M.>"}
        while (record := self.js.message(self.stream, **wish)) is not None:
            about = meta_of(record)
            if not about.get("deleted"):
                yield about
            wish["seq"] = int(record["seq"]) + 1

    def put(
        self, name: str, source: IO[bytes], description: str, done: Callable[[int], None]
    ) -> Json:
        """Store an object, a part at a time; what went by its name before is removed then."""
        self.info()
        before = self.find(name)
        nuid = os.urandom(11).hex()
        digest, size, chunks = hashlib.sha256(), 0, 0
        while part := source.read(CHUNK):
            self._write(f"$O.{self.name}.C.{nuid}", part)
            digest.update(part)
            size, chunks = size + len(part), chunks + 1
            done(len(part))
        about = {
            "name": name,
            "bucket": self.name,
            "nuid": nuid,
            "size": size,
            "chunks": chunks,
            "mtime": "0001-01-01T00:00:00Z",
            "options": {"max_chunk_size": CHUNK},
            "digest": f"SHA-256={base64.urlsafe_b64encode(digest.digest()).decode()}",
        }
        if description:
            about["description"] = description
        self._write_meta(about)
        if before is not None and before.get("nuid"):
            self._purge(before["nuid"])
        return about

    def get(self, about: Json, out: IO[bytes], done: Callable[[int], None]) -> None:
        """Write an object's parts, in order, and compare its digest."""
        digest, seq, left = hashlib.sha256(), 1, int(about.get("chunks", 0))
        subject = f"$O.{self.name}.C.{about['nuid']}"
        while left:
            record = self.js.message(self.stream, seq=seq, next_by_subj=subject)
            if record is None:
                raise ClientError(f"{about['name']}: {left} of its parts are gone from the server")
            part = base64.b64decode(record.get("data") or "")
            digest.update(part)
            out.write(part)
            done(len(part))
            seq, left = int(record["seq"]) + 1, left - 1
        told = f"SHA-256={base64.urlsafe_b64encode(digest.digest()).decode()}"
        if about.get("digest") and about["digest"].rstrip("=") != told.rstrip("="):
            raise ClientError(f"{about['name']}: its digest differs: the object is damaged")

    def remove(self, about: Json) -> None:
        """Remove an object; a trace of it stays."""
        gone = {**about, "deleted": True, "size": 0, "chunks": 0, "digest": ""}
        self._write_meta(gone)
        self._purge(about["nuid"])

    def _write(self, subject: str, body: bytes, headers: dict[str, str] | None = None) -> int:
        try:
            return revision_of(self.js.client.request(subject, body, self.js.timeout, headers))
        except NoResponders:
            raise self._backing.absent() from None

    def _write_meta(self, about: Json) -> None:
        subject = self.meta_subject(about["name"])
        self._write(subject, json.dumps(about).encode(), {"Nats-Rollup": "sub"})

    def _purge(self, nuid: str) -> None:
        self.js.ask(f"STREAM.PURGE.{self.stream}", {"filter": f"$O.{self.name}.C.{nuid}"})


def meta_of(record: Json) -> Json:
    """Return what a record tells about an object; its time is when it was stored."""
    about: Json = json.loads(base64.b64decode(record["data"]))
    about["mtime"] = record.get("time") or datetime.now(UTC).isoformat()
    return about
