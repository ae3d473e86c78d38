"""Consumers that mirrors and sources of other servers ask for.

Whoever asks says under which word it knows the stream; one that was deleted and made again has
another, so that nobody goes on in the middle of something new.
"""

import secrets
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from millstream.consumers.config import ConsumerRefused
from millstream.streams.config.extras import first_values
from millstream.streams.config.source import identity_of, is_same

if TYPE_CHECKING:
    from millstream.consumers.consumer import Consumer
    from millstream.streams.stream import Stream

IDENTITY = b"Nats-Stream-Identity"
REQUEST_HEADERS: ContextVar[bytes] = ContextVar("request_headers", default=b"")


class Identified(dict[str, Any]):
    """An answer that tells in its headers which incarnation of a stream it is about."""

    identity = ""

    @classmethod
    def about(cls, stream: "Stream", answer: dict[str, Any]) -> "Identified":
        """Return an answer about a stream."""
        made = cls(answer)
        made.identity = identity_of(stream)
        return made


def headers_of(answer: dict[str, Any]) -> bytes:
    """Return the headers that an answer goes out with."""
    if not isinstance(answer, Identified):
        return b""
    return b"NATS/1.0\r\n%s: %s\r\n\r\n" % (IDENTITY, answer.identity.encode())


def names_identity() -> bool:
    """Whether the request says which incarnation it means."""
    return IDENTITY in first_values(REQUEST_HEADERS.get())


def check_identity(stream: "Stream") -> None:
    """Refuse a request that means another incarnation of a stream."""
    meant = first_values(REQUEST_HEADERS.get()).get(IDENTITY, b"").decode("utf-8", "replace")
    if meant and not is_same(meant, stream):
        why = f"consumer's stream identity does not match: {identity_of(stream)}"
        raise ConsumerRefused(10225, why)


def settled(wire: dict[str, Any], stream: "Stream", known: "Consumer | None") -> dict[str, Any]:
    """Return the configuration of a mirror's or source's consumer as it is kept.

    It comes with a name that stays. Where records go once they are taken, it becomes durable and
    acks them; anywhere else each gets a name of its own.
    """
    name = wire.get("name") or ""
    if not (wire.get("direct") and wire.get("sourcing") and name):
        return wire
    if stream.config.retention == "limits":
        return {**wire, "name": f"{name}-{secrets.token_hex(4)}"}
    kept = {
        **wire,
        "direct": False,
        "durable_name": name,
        "ack_policy": "flow_control",
        "ack_wait": 0,
        "max_deliver": 0,
        "inactive_threshold": 0,
    }
    if known is not None:
        before = known.config.to_request()
        for key in ("deliver_policy", "opt_start_seq", "opt_start_time"):
            kept.pop(key, None)
            kept |= {key: before[key]} if key in before else {}
    return kept
