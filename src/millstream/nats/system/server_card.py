"""ServerCard: how the server names itself in what it tells the system account."""

import secrets
from collections.abc import Callable
from typing import Any

import msgspec

from millstream.clock import Clock
from millstream.wire.feature_flags import FEATURE_FLAGS
from millstream.wire.info import ServerInfo
from millstream.wire.times import rfc3339

_JETSTREAM_FLAG = 7  # as a nats-server alone: with binary snapshots and traffic by account


class ServerCard:
    """Numbers and dates every message it is put on."""

    def __init__(self, info: Callable[[], ServerInfo], clock: Clock) -> None:
        self._info = info
        self._clock = clock
        self.tags: list[str] = []  # what the server is labelled with; both may change
        self.metadata: dict[str, str] = {}
        self._seq = 0

    @property
    def id(self) -> str:
        """The server's public key."""
        return self._info().server_id

    def now(self) -> str:
        """Return the time as events write it."""
        return rfc3339(self._clock.time_ns())

    def short(self) -> dict[str, Any]:
        """Return who this is, and nothing else."""
        info = self._info()
        return {"name": info.server_name, "host": info.host, "id": info.server_id}

    def full(self) -> dict[str, Any]:
        """Return who this is, what it can do, and when it said so."""
        info = self._info()
        self._seq += 1
        optional = {
            "cluster": info.cluster,
            "domain": info.domain,
            "tags": self.tags,
            "metadata": self.metadata,
        }
        return {
            **self.short(),
            **{key: value for key, value in optional.items() if value},
            "ver": info.version,
            "jetstream": info.jetstream,
            "flags": _JETSTREAM_FLAG if info.jetstream else 0,
            "feature_flags": FEATURE_FLAGS,
            "seq": self._seq,
            "time": self.now(),
        }

    def event(self, kind: str, **fields: Any) -> bytes:
        """Return an event of the schema ``io.nats.server.advisory.v1.<kind>``."""
        head = {
            "type": f"io.nats.server.advisory.v1.{kind}",
            "id": secrets.token_hex(11),
            "timestamp": self.now(),
            "server": self.full(),
        }
        return msgspec.json.encode({**head, **fields})

    def answer(self, data: Any) -> bytes:
        """Return the envelope of an answer, which may be that there is nothing to say."""
        told = {} if data is None else {"data": data}
        return msgspec.json.encode({"server": self.full(), **told})

    def failure(self, code: int, text: str) -> bytes:
        """Return the envelope of a refusal."""
        error = {"code": code, "description": text}
        return msgspec.json.encode({"server": self.full(), "error": error})

    def matches(self, wanted: dict[str, Any]) -> bool:
        """Say whether a request that names servers by these filters means this one."""
        info = self._info()
        exact = bool(wanted.get("exact_match"))
        named = {
            "server_name": info.server_name,
            "cluster": info.cluster,
            "host": info.host,
        }
        for key, value in named.items():
            asked = wanted.get(key) or ""
            if asked and (asked != value if exact else asked not in value):
                return False
        if wanted.get("domain") and wanted["domain"] != info.domain:
            return False
        return all(tag in self.tags for tag in wanted.get("tags") or ())
