"""At least once: rows published message by message, to any NATS server with JetStream.

Each message waits for its acknowledgement. A task that runs again publishes its rows again: with
``msgId`` columns, or where a task's rows come in the same order, the server's duplicate window
drops them. That is as much as can be promised without staging.
"""

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from millstream.client.blocking import Client, Subscription
from millstream.client.streams import Batch
from millstream.spark.options import WriteOptions
from millstream.spark.problems import OptionError, SparkSourceError
from millstream.spark.reading.header_map import parse_headers
from millstream.spark.writing.entries import EXPECTED_STREAM, MSG_ID, EntryParts, Layout, parts_of

if TYPE_CHECKING:
    import pyarrow as pa

NOT_THAT_STREAM = 10060  # err_code
WINDOW = 1024  # messages on their way to the server and back


class PublishFailed(SparkSourceError):
    """The server did not store a message."""


class _Ack(msgspec.Struct, frozen=True):
    stream: str = ""
    seq: int = 0
    error: dict[str, object] | None = None


def check(options: WriteOptions) -> None:
    """Refuse a url that no message can be published to."""
    if options.server.url.startswith(("http://", "https://")):
        raise OptionError("delivery=at-least-once publishes over NATS: give a nats:// url")


def publish(
    options: WriteOptions,
    layout: Layout,
    batch: Batch,
    partition: int,
    rows: Iterator["pa.RecordBatch"],
) -> int:
    """Publish the rows of one task and return how many, once all are acknowledged."""
    inbox = f"_INBOX.{secrets.token_hex(11)}"
    # A query that starts anew counts from 0 again: its messages repeat nothing of an earlier one.
    whose = f"{batch.sink}/{batch.query}" if batch.query else batch.sink
    prefix = f"{whose}/{batch.batch}/{partition}"
    sent = 0
    with options.server.client() as client:
        acks = client.subscribe(f"{inbox}.*")
        waiting = 0
        for one in rows:
            for subject, headers, payload in _messages(parts_of(one, layout)):
                headers.setdefault(MSG_ID, [f"{prefix}/{sent}"])
                headers[EXPECTED_STREAM] = [options.stream]
                client.publish(subject, payload, headers, reply=f"{inbox}.{sent}")
                sent += 1
                waiting += 1
                if waiting == WINDOW:
                    waiting = _acknowledged(client, acks, waiting, WINDOW // 2, options)
        _acknowledged(client, acks, waiting, 0, options)
    return sent


def _messages(parts: EntryParts) -> Iterator[tuple[str, dict[str, list[str]], bytes]]:
    arrays = (parts.subject, parts.tag, parts.headers, parts.payload)
    for subject, tag, block, payload in zip(*(a.to_pylist() for a in arrays), strict=True):
        headers = dict(parse_headers(block)) if block else {}
        if tag:
            headers["Millstream-Tag"] = [tag.decode()]
        yield subject.decode(), headers, payload


def _acknowledged(
    client: Client, acks: Subscription, waiting: int, most: int, options: WriteOptions
) -> int:
    """Take acknowledgements until no more than ``most`` are missing."""
    while waiting > most:
        message = acks.next(options.server.timeout)
        if message.status == 503:
            raise PublishFailed(f"no stream of {client.address} captures these subjects")
        ack = msgspec.json.decode(message.payload, type=_Ack)
        if ack.error is not None and ack.error.get("err_code") == NOT_THAT_STREAM:
            raise PublishFailed(
                f"stream {options.stream!r} does not take these subjects, another of "
                f"{client.address} does: nothing was stored there; name that one, or change the "
                "subjects"
            )
        if ack.error is not None:
            raise PublishFailed(f"{client.address} refused a record: {ack.error}")
        waiting -= 1
    return waiting
