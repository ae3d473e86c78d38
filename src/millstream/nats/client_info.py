"""What is shown of a client: in the log, in events, and to the accounts whose services it asks."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from millstream.nats.transport.transport import Kind
from millstream.wire import errors
from millstream.wire.times import rfc3339

if TYPE_CHECKING:
    from millstream.nats.session import Session


# How the log calls the ways to say who one is.
_WAYS = {"nkey": "Nkey", "jwt": "JWT User", "token": "Token"}


def label(session: "Session", stats: Mapping[str, int]) -> str:
    """Return how the log names the client: where from, and who since it has said so."""
    asked, transport = session.options, session.transport
    kind = "wid" if transport.kind is Kind.WEBSOCKET else "cid"
    words = [f"{transport.peer}:{transport.port or stats['port']} - {kind}:{session.cid}"]
    if not session.connected:
        return words[0]
    program = [f"v{asked.version}" if asked.version else "", asked.lang, asked.name]
    if any(program):
        words.append(errors.quoted(":".join(filter(None, program)).encode()))
    way, user = _claim(session)
    if way and session.space is not None:
        user = way if way == "token" else f"{way}:{user}"
        words.append(errors.quoted(f"{session.space.name}/{user}".encode()))
    return " - ".join(words)


def user_of(session: "Session") -> str:
    """Return who the client is by its own word, or by what it was taken for; no secret."""
    identity = session.identity if session.connected else None
    return _claim(session)[1] or (identity.name if identity is not None else "")


def refused_user(session: "Session") -> str:
    """Return how the log names somebody who was not believed."""
    way, user = _claim(session)
    return f"{_WAYS.get(way, 'User')} {errors.quoted((user or 'N/A').encode())}"


def _claim(session: "Session") -> tuple[str, str]:
    """Return in which way the client says who it is, and the name."""
    shown, identity = session.presented, session.identity
    if shown.nkey:
        return "nkey", shown.nkey
    if shown.user:
        return "user", shown.user
    if shown.jwt:
        return "jwt", identity.name if identity is not None else ""
    return ("token", "[REDACTED]") if shown.token else ("", "")


def client_info(session: "Session", *, detailed: bool = True) -> dict[str, Any]:
    """Return what others may learn of a client: account and distance, or all of it."""
    account = session.space.name if session.space is not None else ""
    distance = round(session.liveness.rtt * 1e9)
    if not detailed:
        return {"acc": account, **({"rtt": distance} if distance else {})}
    options, transport = session.options, session.transport
    info = {
        "start": rfc3339(session.liveness.started_ns),
        "host": transport.peer,
        "id": session.cid,
        "acc": account,
        "user": user_of(session),
        "name": options.name,
        "lang": options.lang,
        "ver": options.version,
        "rtt": distance,
        "name_tag": session.identity.label if session.identity is not None else "",
        "kind": "Client",
        "client_type": "websocket" if transport.kind is Kind.WEBSOCKET else "nats",
    }
    return {key: value for key, value in info.items() if value}
