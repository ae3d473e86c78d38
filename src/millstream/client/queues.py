"""A job queue over HTTP, one blocking call at a time."""

import base64
import http.client
import re
from typing import Any, Self
from urllib.parse import quote, urlsplit

import msgspec

from millstream.client.errors import ClientError, InvalidUrl

DEFAULT_URL = "http://127.0.0.1:8222"
_WAIT_SECONDS = 30.0
_DOUBLED = re.compile(rb'\{"\$\$+base64[^"]*":')  # an object that would look like wrapped bytes


class Job(msgspec.Struct, rename={"seq": "$seq", "tag": "$tag", "subject": "$subject"}):
    """A claimed job; ``data`` is JSON text."""

    seq: int
    lease_id: str
    deadline: int
    deliveries: int
    data: msgspec.Raw
    tag: str = ""
    subject: str = ""

    def payload(self) -> bytes:
        """Return the record's bytes: JSON text, or what it wraps as base64."""
        text = bytes(self.data)
        if text.startswith(b'{"$base64":'):
            return base64.b64decode(msgspec.json.decode(text)["$base64"])
        if _DOUBLED.match(text):
            return b'{"' + text[3:]
        return text


class QueueSettings(msgspec.Struct):
    """What a worker wants to know of a queue's configuration."""

    lease_ms: int = 30_000
    max_deliveries: int = 0
    dead_letter: str | None = None


class _Claim(msgspec.Struct):
    claimed: list[Job]


class _Described(msgspec.Struct):
    type: str
    config: QueueSettings


class _Failure(msgspec.Struct):
    code: str = ""
    message: str = ""


class _Refused(msgspec.Struct):
    error: _Failure


class QueueClient:
    """Claims and answers jobs of one queue as one node; a lost connection is opened again."""

    def __init__(self, url: str | None, queue: str, node: str, token: str = "") -> None:
        self._url = url or DEFAULT_URL
        parts = urlsplit(self._url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidUrl(f"'{self._url}' is no server: write http://host:port")
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        self._connection = kind(parts.hostname, parts.port, timeout=_WAIT_SECONDS)
        self._path = f"/v0/topics/{quote(queue, safe='')}"
        self._queue = queue
        self._node = node
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self._connection.close()

    def settings(self) -> QueueSettings:
        """Return the queue's settings; raises when the topic is none."""
        found: _Described = self._call("GET", "", None, _Described)
        if found.type != "queue":
            raise ClientError(f"{self._queue} is a log; a queue is created with type queue")
        return found.config

    def claim(self) -> Job | None:
        """Lease the next job, if there is one."""
        found: _Claim = self._call("POST", "/claim", {"node": self._node}, _Claim)
        return found.claimed[0] if found.claimed else None

    def ack(self, job: Job) -> bool:
        """Finish a job; False when its lease was lost."""
        return bool(self._answer("ack", job)["acked"])

    def nack(self, job: Job, delay_ms: int = 0) -> bool:
        """Give a job back; False when its lease was lost."""
        return bool(self._answer("nack", job, delay_ms=delay_ms)["nacked"])

    def extend(self, job: Job, lease_ms: int) -> bool:
        """Keep a job for longer; False when its lease was lost."""
        return bool(self._answer("extend", job, lease_ms=lease_ms)["extended"])

    def _answer(self, verb: str, job: Job, **more: int) -> dict[str, Any]:
        body = {"node": self._node, "seqs": [job.seq], "lease_ids": [job.lease_id], **more}
        answer: dict[str, Any] = self._call("POST", f"/{verb}", body, dict[str, Any])
        return answer

    def _call(self, method: str, path: str, body: object, kind: Any) -> Any:
        raw = None if body is None else msgspec.json.encode(body)
        try:
            status, text = self._send(method, self._path + path, raw)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            status, text = self._send(method, self._path + path, raw)  # it was idle for too long
        try:
            if status == 200:
                return msgspec.json.decode(text, type=kind)
            why = msgspec.json.decode(text, type=_Refused).error
        except msgspec.DecodeError:
            raise ClientError(f"{self._url} answered {status}, but not as millstream") from None
        raise ClientError(f"{self._url}: {why.message} ({why.code})")

    def _send(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        try:
            self._connection.request(method, path, body, self._headers)
            response = self._connection.getresponse()
            return response.status, response.read()
        except (ConnectionResetError, BrokenPipeError, http.client.RemoteDisconnected):
            self._connection.close()
            raise
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise ClientError(
                f"no answer from {self._url} ({error}): is `millstream serve` running there?"
            ) from error
