"""``$MILLSTREAM.API.PLAN.<stream>`` and ``$MILLSTREAM.API.READ.<stream>``: the Spark door.

A plan is JSON; a range is raw frames, which begin with a magic that no JSON begins with, so an
error answer (``{"error": …}``) is told from data by its first byte. Who may read only some of a
stream's subjects gets a plan without files, and ranges of what they may read.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from millstream.errors import BadRequest, MillstreamError, NotHere
from millstream.streams.reading.read_plan import (
    Cold,
    PlanRequest,
    RangeRequest,
    SealedSegment,
    plan_for,
    read_range,
)
from millstream.streams.reading.views import Sees, Views

if TYPE_CHECKING:
    from millstream.kernel._batch import Batch
    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest
    from millstream.streams.catalog import Catalog
    from millstream.streams.stream import Stream

log = logging.getLogger(__name__)

PLAN_PREFIX = b"$MILLSTREAM.API.PLAN."
READ_PREFIX = b"$MILLSTREAM.API.READ."
# Frames may be this much larger than the record's payload; clients take what a server sends them.
MAX_PAYLOAD = 1 << 20

_Shape = TypeVar("_Shape")
Answer = Callable[["Stream", bytes, Sees | None], bytes]
# From a connection, its account and a stream to what it sees of it, None for everything.
SightOf = Callable[[int, str, str], Sees | None]


class ReadEndpoint:
    """Answers requests about one account's streams; a sink like any other."""

    def __init__(
        self,
        hub: "Hub",
        interest: "Interest",
        catalog: "Catalog",
        prefix: bytes,
        answer: Answer,
        account: str,
        sight_of: SightOf,
    ) -> None:
        self._hub = hub
        self._interest = interest
        self._catalog = catalog
        self._prefix = prefix
        self._answer = answer
        self._account = account
        self._sight_of = sight_of

    def deliver(self, batch: "Batch") -> None:
        """Answer each request of the batch."""
        for at in range(len(batch)):
            subject, reply, _, payload, origin = batch.message(at)
            if reply:
                self._send(subject, reply, payload, origin)

    def _send(self, subject: bytes, reply: bytes, payload: bytes, origin: int) -> None:
        try:
            body = self._reply(subject, payload, origin)
        except NotHere as missing:
            missing.wait(partial(self._once_here, subject, reply, payload, origin))
            return
        self._hub.publish(self._interest, reply, b"", b"", body)

    def _once_here(
        self,
        subject: bytes,
        reply: bytes,
        payload: bytes,
        origin: int,
        error: MillstreamError | None,
    ) -> None:
        """Answer what had to wait for cold history."""
        if error is None:
            self._send(subject, reply, payload, origin)
        else:
            self._hub.publish(self._interest, reply, b"", b"", failure_of(error))
        self._hub.flush()

    def _reply(self, subject: bytes, payload: bytes, origin: int) -> bytes:
        name = subject.removeprefix(self._prefix).decode(errors="replace")
        try:
            stream = self._catalog.get(name, self._account)
            return self._answer(stream, payload, self._sight_of(origin, self._account, name))
        except NotHere:
            raise
        except MillstreamError as error:
            return failure_of(error)


def sees_everything(origin: int, account: str, stream: str) -> Sees | None:
    """Hide nothing."""
    return None


def register(
    hub: "Hub",
    interest: "Interest",
    catalog: "Catalog",
    segments_of: Callable[["Stream"], Sequence[SealedSegment]],
    account: str = "$G",
    max_payload: int = MAX_PAYLOAD,
    sight_of: SightOf = sees_everything,
    cold_of: Callable[["Stream"], Cold | None] = lambda stream: None,
) -> list[int]:
    """Register both endpoints of an account; returns the handles of their sinks.

    ``segments_of`` is ``lambda stream: store.plan(stream.log.log_id)``.
    """

    views = Views()

    def plan(stream: "Stream", payload: bytes, sees: Sees | None) -> bytes:
        asked = request_of(payload, PlanRequest)
        cold = cold_of(stream) if sees is None else None
        told = plan_for(stream, segments_of(stream), asked, whole=sees is None, cold=cold)
        return msgspec.json.encode(told)

    def read(stream: "Stream", payload: bytes, sees: Sees | None) -> bytes:
        asked = request_of(payload, RangeRequest)
        return read_range(stream, asked, max_payload, views.of(stream, sees))

    plans = ReadEndpoint(hub, interest, catalog, PLAN_PREFIX, plan, account, sight_of)
    ranges = ReadEndpoint(hub, interest, catalog, READ_PREFIX, read, account, sight_of)
    return [
        interest.add_sink(PLAN_PREFIX + b">", plans),
        interest.add_sink(READ_PREFIX + b">", ranges),
    ]


def request_of(payload: bytes, shape: type[_Shape]) -> _Shape:
    """Return what a request says; raises ``BadRequest``."""
    try:
        return msgspec.json.decode(payload or b"{}", type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"cannot read the request: {error}") from error


def failure_of(error: MillstreamError) -> bytes:
    """Return the answer that tells of an error."""
    told: dict[str, Any] = {
        "code": error.status,
        "err_code": error.err_code,
        "description": error.message,
    }
    if error.detail is not None:
        told["detail"] = error.detail
    return msgspec.json.encode({"error": told})
