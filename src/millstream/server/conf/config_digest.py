"""The fingerprint of a configuration: the same for files that say the same, as nats-server has it.

It is the SHA-256 of the settings as Go writes them in JSON, so comments, blanks and the order of
keys do not count, and tools that compare servers by ``config_digest`` see both alike.
"""

import hashlib
import json
from datetime import datetime

from millstream.server.conf.syntax import ConfBlock, Value

_ESCAPED = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}


def config_digest(block: ConfBlock) -> str:
    """Return the fingerprint of a parsed file."""
    return f"sha256:{hashlib.sha256((_written(block) + chr(10)).encode()).hexdigest()}"


def _written(value: Value) -> str:
    if isinstance(value, dict):
        pairs = (f"{_text(key)}:{_written(value[key])}" for key in sorted(value))
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_written(item) for item in value) + "]"
    if isinstance(value, datetime):
        return _text(value.strftime("%Y-%m-%dT%H:%M:%SZ"))
    if isinstance(value, float) and not isinstance(value, bool):
        return _number(value)
    return json.dumps(value) if isinstance(value, bool | int) else _text(value)


def _number(value: float) -> str:
    """Write a number as Go does: without a fraction where there is none."""
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent):+d}" if e else text


def _text(value: str) -> str:
    written = json.dumps(value, ensure_ascii=False)
    for character, escape in _ESCAPED.items():
        written = written.replace(character, escape)
    return written
