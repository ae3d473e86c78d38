"""A table published at the pace at which its records once came."""

import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.pipelines.problems import PipelineError

if TYPE_CHECKING:
    from millstream.client.blocking import Client, Subscription
    from millstream.spark.server import Server

MSG_ID = "Nats-Msg-Id"
EXPECTED_STREAM = "Nats-Expected-Stream"
# Headers that say under which conditions a record was to be stored, where it first was.
CONDITIONS = ("nats-expected-", "nats-batch-")
NOT_THAT_STREAM = 10060  # err_code
WINDOW = 256  # messages whose acknowledgement is still to come
_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class ReplayPace:
    """When a record is due: the time since the first one, divided by ``speed``."""

    speed: float

    def due(self, ts_ns: int, first_ns: int) -> float:
        """Return after how many seconds a record follows the first; never before it."""
        return max(ts_ns - first_ns, 0) / 1e9 / self.speed


def publish(
    server: "Server",
    rows: Iterable[Any],
    stream: str,
    subject: str | None,
    pace: ReplayPace,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> int:
    """Publish rows to a stream in their order, each when it is due; returns how many were stored.

    A subject that another stream takes is refused there: nothing gets into a stream not named.
    Each has the id ``<stream>/<seq>`` of where it once was, so that a stream with a duplicate
    window takes a replay that starts again within it once.
    """
    inbox = f"_INBOX.{secrets.token_hex(11)}"
    sent, waiting, began, first_ns = 0, 0, now(), None
    with server.client() as client:
        acks = client.subscribe(inbox)
        for row in rows:
            first_ns = row.ts_ns if first_ns is None else first_ns
            if (wait := began + pace.due(row.ts_ns, first_ns) - now()) > 0:
                client.flush()
                sleep(wait)
            headers = {**dict(_headers(row)), EXPECTED_STREAM: [stream]}
            client.publish(subject or row.subject, bytes(row.payload), headers, reply=inbox)
            sent, waiting = sent + 1, waiting + 1
            if waiting == WINDOW:
                waiting = _acknowledged(client, acks, waiting, WINDOW // 2, stream)
        _acknowledged(client, acks, waiting, 0, stream)
    return sent


def _headers(row: Any) -> Iterator[tuple[str, list[str]]]:
    if row.tag:
        yield "Millstream-Tag", [row.tag]
    for name, values in (row.headers or {}).items():
        if name != MSG_ID and not name.lower().startswith(CONDITIONS):
            yield name, list(values)
    yield MSG_ID, [f"{row.stream}/{row.seq}"]


def _acknowledged(
    client: "Client", acks: "Subscription", waiting: int, most: int, stream: str
) -> int:
    while waiting > most:
        message = acks.next(_TIMEOUT)
        if message.status == 503:
            raise PipelineError(f"no stream of {client.address} captures these subjects")
        answer = json.loads(message.payload)
        if answer.get("error", {}).get("err_code") == NOT_THAT_STREAM:
            raise PipelineError(
                f"stream {stream!r} does not take these subjects, another of {client.address} "
                "does: nothing was stored there; give --subject, one that it takes"
            )
        if "error" in answer:
            raise PipelineError(f"a record was refused: {answer['error']['description']}")
        waiting -= 1
    return waiting
