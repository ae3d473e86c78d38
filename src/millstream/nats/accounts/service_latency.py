"""ServiceLatency: how long exported services take, told where their owner asked for it."""

import random
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.accounts.account import Latency
from millstream.clock import Clock
from millstream.kernel._hub import Hub
from millstream.nats.client_info import client_info
from millstream.wire.headers import MalformedHeaders, parse_headers
from millstream.wire.times import rfc3339

if TYPE_CHECKING:
    from millstream.nats.accounts.accounts import Space
    from millstream.nats.session import Session

_TYPE = "io.nats.server.metric.v1.service_latency"
_ALWAYS = 100
_UBER, _B3, _CONTEXT = "Uber-Trace-Id", "B3", "Traceparent"
_B3_SAMPLED, _B3_TRACE = "X-B3-Sampled", "X-B3-Traceid"
_ERRORS = {
    400: "Bad Request",
    408: "Request Timeout",
    503: "Service Unavailable",
    504: "Service Timeout",
}

Headers = dict[str, list[str]]


class Measure(msgspec.Struct):
    """A request that is being timed."""

    subject: str
    requestor: dict[str, Any]
    started_ns: int
    headers: Headers = msgspec.field(default_factory=dict)


class ServiceLatency:
    """Times requests to the services of one account and tells the account."""

    def __init__(
        self,
        hub: Hub,
        owner: "Space",
        clock: Clock,
        dice: Callable[[int], int] = random.randrange,
    ) -> None:
        self._hub = hub
        self._owner = owner
        self._clock = clock
        self._dice = dice

    def begin(
        self, wanted: Latency | None, headers: bytes, requestor: "Session | None", *, shared: bool
    ) -> Measure | None:
        """Start timing a request, None where it is not to be timed."""
        if wanted is None or requestor is None:
            return None
        asked: Headers = {}
        if not self._is_drawn(wanted.sampling):
            asked = sampled_by(_named(headers))
            if not asked:
                return None
        told = client_info(requestor, detailed=shared)
        return Measure(wanted.subject, told, self._clock.time_ns(), asked)

    def _is_drawn(self, sampling: int) -> bool:
        return sampling >= _ALWAYS or (sampling > 0 and self._dice(_ALWAYS) <= sampling)

    def end(self, measure: Measure | None, status: int, responder: "Session | None" = None) -> None:
        """Tell what came of a request, if it was timed."""
        if measure is None:
            return
        waited = measure.requestor.get("rtt", 0)
        told: dict[str, Any] = {
            "type": _TYPE,
            "id": secrets.token_hex(11),
            "timestamp": rfc3339(self._clock.time_ns()),
            "status": status,
            **({"description": _ERRORS[status]} if status in _ERRORS else {}),
            "requestor": measure.requestor,
        }
        service = 0
        if responder is not None:
            told["responder"] = client_info(responder)
            away = told["responder"].get("rtt", 0)
            service = max(self._clock.time_ns() - measure.started_ns - away, 0)
        if measure.headers:
            told["header"] = measure.headers
        total = waited + service + told.get("responder", {}).get("rtt", 0)
        told["start"] = rfc3339(measure.started_ns - waited)
        told |= {"service": service, "system": 0, "total": total if status == 200 else 0}
        subject = measure.subject.encode()
        self._hub.publish(self._owner.interest, subject, b"", b"", msgspec.json.encode(told))


def _named(headers: bytes) -> Headers:
    found: Headers = {}
    try:
        for name, value in parse_headers(headers):
            key = name.decode("utf-8", "replace")
            found.setdefault(key.title(), []).append(value.decode("utf-8", "replace"))
    except MalformedHeaders:
        return {}
    return found


def sampled_by(headers: Headers) -> Headers:
    """Return the trace headers that ask for a measurement, empty where none does."""
    if _UBER in headers:
        flags = headers[_UBER][0].split(":")[3:]
        asks = len(flags) == 1 and 0 < len(flags[0]) <= 2 and _odd(flags[0])
        return _of(headers, _UBER, "Uberctx-") if asks else {}
    sampled = headers.get(_B3_SAMPLED, [""])[0]
    if sampled == "1" or (sampled != "0" and _B3_TRACE in headers):
        return _of(headers, "X-B3-")
    if sampled == "0":
        return {}
    if _B3 in headers:
        words = headers[_B3][0].split("-")
        denied = words[2] == "0" if len(words) > 2 else words == ["0"]
        return {} if denied else {_B3: headers[_B3]}
    if _CONTEXT in headers:
        words = headers[_CONTEXT][0].split("-")
        if len(words) == 4 and len(words[3]) == 2 and _odd(words[3]):
            return _of(headers, _CONTEXT, "Tracestate")
    return {}


def _odd(digits: str) -> bool:
    try:
        return int(digits, 16) % 2 == 1
    except ValueError:
        return False


def _of(headers: Headers, *prefixes: str) -> Headers:
    return {name: values for name, values in headers.items() if name.startswith(prefixes)}
