"""A message as the terminal or a pipe shows it."""

import base64
import sys

import msgspec

from millstream.client import Message


def show(message: Message, *, as_json: bool, raw: bool) -> None:
    """Print one message, at once, so that a pipe sees it when it happens."""
    out = sys.stdout.buffer
    out.write(rendered(message, as_json=as_json, raw=raw) + b"\n")
    out.flush()


def rendered(message: Message, *, as_json: bool, raw: bool) -> bytes:
    """Return the message as JSON, as its payload alone, or as text for people."""
    if as_json:
        return msgspec.json.encode(_fields(message))
    if raw:
        return message.payload
    answer = f"  reply to {message.reply}" if message.reply else ""
    headers = [f"  {name}: {v}" for name, values in message.headers.items() for v in values]
    lines = [f"{message.subject}{answer}", *headers]
    return "\n".join(lines).encode(errors="surrogateescape") + b"\n  " + message.payload


def _fields(message: Message) -> dict[str, object]:
    fields: dict[str, object] = {"subject": message.subject}
    if message.reply:
        fields["reply"] = message.reply
    if message.headers:
        fields["headers"] = message.headers
    return fields | {"payload": _payload(message.payload)}


def _payload(payload: bytes) -> object:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return {"$base64": base64.b64encode(payload).decode()}
