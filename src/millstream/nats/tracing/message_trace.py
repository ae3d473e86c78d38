"""MessageTrace: what happened to one message, event by event."""

from typing import Any

import msgspec

from millstream.clock import Clock
from millstream.nats.tracing.trace_request import TraceRequest
from millstream.wire.times import rfc3339

_CLIENT = 0  # the kind of connection


class MessageTrace:
    """Grows while a message is served; ``encoded`` is what its destination gets."""

    def __init__(
        self, request: TraceRequest, clock: Clock, account: str, size: int, **came: Any
    ) -> None:
        """``came`` says who brought the message, and under which subject."""
        self.only = request.only
        self._request = request
        self._clock = clock
        self._account = account
        self._size = size
        self._events: list[dict[str, Any]] = []
        name = {"name": came["name"]} if came["name"] else {}
        where = {"acc": account, "subj": came["subject"]}
        self._came = self._add("in", kind=_CLIENT, cid=came["cid"], **name, **where)

    def refused(self, text: str) -> None:
        """Say why the message went nowhere."""
        self._came["error"] = text

    def mapped(self, to: str) -> None:
        """Say that the account's mappings send it elsewhere."""
        self._add("sm", to=to)

    def exported(self, account: str, to: str) -> None:
        """Say that another account hears it."""
        self._add("se", acc=account, to=to)

    def handed_over(self, account: str, origin: str, to: str) -> None:
        """Say that a service of another account is asked."""
        self._add("si", acc=account, **{"from": origin}, to=to)

    def stored(self, stream: str, subject: str, error: str, *, interest: bool) -> None:
        """Say what a stream made of it."""
        told: dict[str, Any] = {"stream": stream}
        if error:
            told["error"] = error
        else:
            told["subject"] = subject
            told |= {} if interest else {"nointerest": True}
        self._add("js", **told)

    def delivered(
        self, cid: int, name: str, account: str, subscription: str, queue: str, error: str
    ) -> None:
        """Say that a client got it, or why not."""
        told = {
            "name": name,
            "acc": account if account != self._account else "",
            "sub": subscription,
            "queue": queue,
            "error": error,
        }
        said = {key: value for key, value in told.items() if value}
        self._add("eg", kind=_CLIENT, cid=cid, **said)

    def _add(self, event_type: str, /, **told: Any) -> dict[str, Any]:
        event = {"type": event_type, "ts": rfc3339(self._clock.time_ns()), **told}
        self._events.append(event)
        return event

    def encoded(self, server: dict[str, Any]) -> bytes:
        """Return the event."""
        headers = {name: self._request.headers[name] for name in sorted(self._request.headers)}
        request = {"header": headers, "msgsize": self._size}
        told = {"server": server, "request": request, "events": self._events}
        return msgspec.json.encode(_shown(told))


def _shown(value: Any) -> Any:
    """Return a value in which whatever is no text is shown as such."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, dict):
        return {_shown(key): _shown(inner) for key, inner in value.items()}
    return [_shown(inner) for inner in value] if isinstance(value, list) else value
