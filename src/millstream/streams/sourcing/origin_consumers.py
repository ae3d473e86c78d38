"""What is asked of an origin's API so that a consumer there delivers: one that somebody made, or

one that is made for this alone, as the reference's mirrors and sources make theirs.
"""

import secrets
import string
from typing import Any, NamedTuple, Protocol

import msgspec

from millstream.errors import MillstreamError
from millstream.streams.config.extras import first_values
from millstream.streams.config.source import Source, short_hash
from millstream.streams.sourcing.origin import OriginStart

_LETTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_SECOND = 10**9
_HEARTBEAT_NS = _SECOND
_INACTIVE_NS = 10 * _SECOND
_ACK_WAIT_NS = 22 * 3600 * _SECOND
_IDENTITY = b"Nats-Stream-Identity"
_NOT_UNDERSTOOD = (10185, 10025)  # a level that the server does not have, a field it does not know
_OTHER_STREAM = 10225
_LEVELS = (5, 4, 0)  # knows identities; knows consumers of sources; knows neither


class OriginRequest(NamedTuple):
    """A request to the origin's API; ``operation`` follows the prefix."""

    operation: str
    headers: bytes = b""
    body: bytes = b""


class Opened(NamedTuple):
    """A consumer that is about to deliver."""

    name: str
    deliver: str
    next_seq: int  # of the stream; 0 when the answer does not say
    pending: int
    identity: str


class ConsumerRefusal(Exception):
    """The origin does not open a consumer; ``error`` is what it says, as StreamInfo shows it."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error.get("description", ""))
        self.error = error


class AskAgain(Exception):
    """The same question in other words may be answered; ``start`` is where to begin now."""

    def __init__(self, start: OriginStart) -> None:
        super().__init__()
        self.start = start


class OriginConsumer(Protocol):
    """A consumer that is opened again whenever something was missed."""

    def request(self, start: OriginStart) -> OriginRequest:
        """Return what to ask so that it delivers from a place on."""
        ...

    def read(self, start: OriginStart, headers: bytes, answer: dict[str, Any]) -> Opened:
        """Read the answer; raises ConsumerRefusal or AskAgain."""
        ...

    def removal(self, name: str) -> OriginRequest | None:
        """Return what to ask so that it goes, None for one that stays."""
        ...


class NamedConsumer:
    """A consumer that somebody made: it begins behind what it has acks for."""

    def __init__(self, source: Source, not_flow: MillstreamError) -> None:
        assert source.consumer is not None
        self._stream = source.name
        self._name = source.consumer["name"]
        self._deliver = source.consumer["deliver_subject"]
        self._not_flow = not_flow

    def request(self, start: OriginStart) -> OriginRequest:
        """Return what to ask so that it delivers again."""
        return OriginRequest(f"CONSUMER.RESET.{self._stream}.{self._name}")

    def read(self, start: OriginStart, headers: bytes, answer: dict[str, Any]) -> Opened:
        """Read the answer; raises ConsumerRefusal."""
        if answer.get("error"):
            raise ConsumerRefusal(answer["error"])
        if answer["config"].get("ack_policy") != "flow_control":
            raise ConsumerRefusal(
                {
                    "code": self._not_flow.status,
                    "err_code": self._not_flow.err_code,
                    "description": str(self._not_flow),
                }
            )
        pending = int(answer.get("num_pending", 0))
        return Opened(self._name, self._deliver, 0, pending, "")

    def removal(self, name: str) -> OriginRequest | None:
        """Let it stay: it is not ours."""
        return None


class OwnConsumer:
    """A consumer that is made for one mirror or source, and gone when nobody listens to it."""

    def __init__(self, source: Source, target: tuple[str, str, str], *, mirrors: bool) -> None:
        """``target`` is who follows: its stream, account and domain."""
        self._source = source
        self._mirrors = mirrors
        self._target = target
        self._level = 0  # of _LEVELS
        self._stays = False

    def request(self, start: OriginStart) -> OriginRequest:
        """Return what to ask so that one delivers from a place on."""
        level = _LEVELS[self._level]
        config = self._config(start, level)
        headers = b""
        if level:
            headers = b"NATS/1.0\r\nNats-Required-Api-Level: %d\r\n" % level
            if level >= _LEVELS[0] and start.identity and not self._mirrors:
                headers += b"%s: %s\r\n" % (_IDENTITY, start.identity.encode())
            headers += b"\r\n"
        operation = f"CONSUMER.CREATE.{self._source.name}"
        if "filter_subject" in config:
            operation += f".{config['name']}.{config['filter_subject']}"
        body = msgspec.json.encode({"stream_name": self._source.name, "config": config})
        return OriginRequest(operation, headers, body)

    def _config(self, start: OriginStart, level: int) -> dict[str, Any]:
        kind = "mirror" if self._mirrors else "src"
        words = dict(zip(("stream", "acc", "domain"), self._target, strict=True))
        return {
            "name": self._name(level),
            "deliver_subject": self._deliver_subject(),
            **_begin(start),
            "ack_policy": "none",
            "ack_wait": _ACK_WAIT_NS,
            "max_deliver": 1,
            "idle_heartbeat": _HEARTBEAT_NS,
            "flow_control": True,
            "direct": True,
            "inactive_threshold": _INACTIVE_NS,
            "replay_policy": "instant",
            **self._filter(),
            **({"sourcing": True} if level else {}),
            "metadata": {f"_nats.{kind}.{key}": word for key, word in words.items() if word},
        }

    def _name(self, level: int) -> str:
        """Return a name that stays, which the origin makes unique; if it cannot, we do."""
        stable = short_hash(" ".join((*self._target, *self._source.identity)))
        name = f"JS_{'MIRROR' if self._mirrors else 'SRC'}_{stable}"
        return name if level else f"{name}_{_letters()}"

    def _deliver_subject(self) -> str:
        external = self._source.external
        prefix = external.deliver.rstrip(".") if external is not None else ""
        return f"{prefix or '$JS'}.{'M' if self._mirrors else 'S'}.{_letters()}"

    def _filter(self) -> dict[str, Any]:
        filters = self._source.filters
        if len(filters) > 1:
            return {"filter_subjects": list(filters)}
        return {"filter_subject": filters[0]} if filters else {}

    def read(self, start: OriginStart, headers: bytes, answer: dict[str, Any]) -> Opened:
        """Read the answer; raises ConsumerRefusal, or AskAgain with other words."""
        error = answer.get("error")
        if error:
            code = error.get("err_code")
            if code == _OTHER_STREAM:
                raise AskAgain(OriginStart())
            if code in _NOT_UNDERSTOOD and _LEVELS[self._level]:
                self._level += 1
                raise AskAgain(start)
            raise ConsumerRefusal(error)
        config = answer["config"]
        self._stays = bool(config.get("durable_name"))
        identity = first_values(headers).get(_IDENTITY, b"").decode() if headers else ""
        delivered = int(answer["delivered"]["stream_seq"])
        pending = int(answer.get("num_pending", 0))
        next_seq = 0 if self._stays else delivered + 1
        return Opened(answer["name"], config["deliver_subject"], next_seq, pending, identity)

    def removal(self, name: str) -> OriginRequest | None:
        """Return what to ask so that it goes; one that keeps our place in a work queue stays."""
        if self._stays:
            return None
        return OriginRequest(f"CONSUMER.DELETE.{self._source.name}.{name}")


def _begin(start: OriginStart) -> dict[str, Any]:
    if start.time:
        return {"deliver_policy": "by_start_time", "opt_start_time": start.time}
    if start.seq > 1:
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": start.seq}
    return {"deliver_policy": "all"}


def _letters() -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(8))
