"""``$MILLSTREAM.API.STAGE|COMMIT|ABORT|HOLD.<stream>``: exactly-once batches, and readers' places.

STAGE carries a line of JSON and then the entries themselves; the others are JSON. Answers are JSON,
``{"error": …}`` where something was refused. Who may ask is settled before a request comes here:
the session lets nobody through who may not publish everything that the stream takes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from millstream.consumers.readers import HoldRequest, Readers
from millstream.errors import BadRequest, MillstreamError, Throttled
from millstream.nats.millstream_api.plan_endpoint import failure_of, request_of
from millstream.streams.deposits.deposits import AbortRequest, CommitRequest, Deposits, StageRequest

if TYPE_CHECKING:
    from millstream.kernel._batch import Batch
    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest
    from millstream.streams.catalog import Catalog
    from millstream.streams.stream import Stream

log = logging.getLogger(__name__)

STAGE_PREFIX = b"$MILLSTREAM.API.STAGE."
COMMIT_PREFIX = b"$MILLSTREAM.API.COMMIT."
ABORT_PREFIX = b"$MILLSTREAM.API.ABORT."
HOLD_PREFIX = b"$MILLSTREAM.API.HOLD."
MOST_OPEN = 256  # requests of one account that wait for the files

Work = Callable[["Stream", bytes], Awaitable[bytes]]


class SinkEndpoint:
    """Answers one kind of request about one account's streams, each once its work is done."""

    def __init__(
        self,
        hub: "Hub",
        interest: "Interest",
        catalog: "Catalog",
        prefix: bytes,
        work: Work,
        account: str,
    ) -> None:
        self._hub = hub
        self._interest = interest
        self._catalog = catalog
        self._prefix = prefix
        self._work = work
        self._account = account
        self._open: set[asyncio.Task[None]] = set()

    def deliver(self, batch: "Batch") -> None:
        """Start on each request of the batch."""
        for at in range(len(batch)):
            subject, reply, _, payload, _ = batch.message(at)
            if not reply:
                continue  # whoever does not listen would never know what became of it
            task = asyncio.get_running_loop().create_task(self._answer(subject, reply, payload))
            self._open.add(task)
            task.add_done_callback(self._open.discard)

    async def _answer(self, subject: bytes, reply: bytes, payload: bytes) -> None:
        name = subject.removeprefix(self._prefix).decode(errors="replace")
        try:
            if len(self._open) > MOST_OPEN:
                raise Throttled("open sink requests", MOST_OPEN)
            body = await self._work(self._catalog.get(name, self._account), payload)
        except MillstreamError as error:
            body = failure_of(error)
        except Exception:
            log.exception("request failed subject=%r", subject)
            body = failure_of(MillstreamError("the server failed; its log says why"))
        self._hub.publish(self._interest, reply, b"", b"", body)
        self._hub.flush()


def register(
    hub: "Hub",
    interest: "Interest",
    catalog: "Catalog",
    deposits: Deposits,
    readers: Readers,
    account: str = "$G",
) -> list[int]:
    """Register the endpoints of an account; returns their handles."""

    async def stage(stream: "Stream", payload: bytes) -> bytes:
        line, mark, data = payload.partition(b"\n")
        if not mark:
            raise BadRequest("a line of JSON comes first, then the entries")
        size = await deposits.stage(stream, request_of(line, StageRequest), data)
        return msgspec.json.encode({"staged": size})

    async def commit(stream: "Stream", payload: bytes) -> bytes:
        return msgspec.json.encode(
            await deposits.commit(stream, request_of(payload, CommitRequest))
        )

    async def abort(stream: "Stream", payload: bytes) -> bytes:
        await deposits.abort(stream, request_of(payload, AbortRequest))
        return b"{}"

    async def hold(stream: "Stream", payload: bytes) -> bytes:
        await readers.hold(stream, request_of(payload, HoldRequest))
        return b"{}"

    works: list[tuple[bytes, Work]] = [
        (HOLD_PREFIX, hold),
        (STAGE_PREFIX, stage),
        (COMMIT_PREFIX, commit),
        (ABORT_PREFIX, abort),
    ]
    return [
        interest.add_sink(
            prefix + b">", SinkEndpoint(hub, interest, catalog, prefix, work, account)
        )
        for prefix, work in works
    ]
