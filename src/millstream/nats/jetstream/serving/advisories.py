"""Advisories: what an account is told about its streams, its consumers and its requests."""

from typing import TYPE_CHECKING, Any

import msgspec

from millstream.consumers.outlet import Outlet
from millstream.nats.jetstream.asker import ASKER
from millstream.nats.jetstream.serving.shared_parts import SharedParts

if TYPE_CHECKING:
    from millstream.kernel._interest import Interest

AUDIT = "$JS.EVENT.ADVISORY.API"
_RECORDS = b"$JS.API.STREAM.MSG.GET."


class Advisories:
    """Publishes events on the account's subjects."""

    def __init__(self, parts: SharedParts, account: str, interest: "Interest") -> None:
        self._parts = parts
        self._account = account
        self._outlet = Outlet(parts.hub, interest, parts.clock)

    def tell(self, kind: str, type_name: str, /, **fields: Any) -> None:
        """Publish an advisory about something that a client asked for."""
        about = {**fields, "client": self._client(), **self._domain_field()}
        self._outlet.event(f"$JS.EVENT.ADVISORY.{kind}", f"advisory.v1.{type_name}", **about)

    def tell_stream(self, kind: str, action: str, stream: str) -> None:
        """Publish that a stream was created, updated or deleted."""
        subject = f"$JS.EVENT.ADVISORY.STREAM.{kind}.{stream}"
        self._outlet.event(subject, "advisory.v1.stream_action", stream=stream, action=action)

    def tell_consumer(self, kind: str, action: str, stream: str, consumer: str) -> None:
        """Publish that a consumer was created or deleted."""
        subject = f"$JS.EVENT.ADVISORY.CONSUMER.{kind}.{stream}.{consumer}"
        about = {"stream": stream, "consumer": consumer, "action": action}
        self._outlet.event(subject, "advisory.v1.consumer_action", **about)

    def tell_abandoned(self, stream: str, batch_id: bytes, reason: str) -> None:
        """Tell the account of a batch that was given up, and the system account too."""
        subject = f"$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.{stream}"
        kind = "advisory.v1.stream_batch_abandoned"
        about = {
            "stream": stream,
            **self._domain_field(),
            "batch": batch_id.decode("utf-8", "replace"),
            "reason": reason,
        }
        self._outlet.event(subject, kind, **about)
        hub, system = self._parts.hub, self._parts.system()
        if system is not None:
            beside = Outlet(hub, system, self._parts.clock)
            beside.event(subject, kind, account=self._account, **about)
        hub.flush()

    def tell_limit(self) -> None:
        """Publish that a request was dropped because too many are under way."""
        terms = self._parts.terms
        self._outlet.event(
            "$JS.EVENT.ADVISORY.API.LIMIT_REACHED",
            "advisory.v1.api_limit_reached",
            server=terms.server_name,
            domain=terms.domain,
            dropped=1,
        )

    def tell_audit(self, subject: bytes, payload: bytes, answer: bytes) -> None:
        """Publish a request with its answer, if anybody listens for that."""
        if not self._outlet.is_heard(AUDIT.encode()):  # nobody needs to know who asked
            return
        if subject.startswith(_RECORDS):
            answer = _without_record(answer)
        self._outlet.event(
            AUDIT,
            "advisory.v1.api_audit",
            server=self._parts.terms.server_name,
            client=self._client(),
            subject=subject.decode("utf-8", "replace"),
            **({"request": payload.decode("utf-8", "replace")} if payload else {}),
            response=answer.decode(),
        )

    def _client(self) -> dict[str, Any]:
        found = self._parts.clients.client_of(ASKER.get())
        server = {"server": self._parts.terms.server_name} if found else {}
        return {"acc": self._account, **found, **server}

    def _domain_field(self) -> dict[str, Any]:
        domain = self._parts.terms.domain
        return {"domain": domain} if domain else {}


def _without_record(answer: bytes) -> bytes:
    """Return an answer without what was stored: who hears of a request may not read the record."""
    told = msgspec.json.decode(answer)
    if "message" in told:
        kept = {key: told["message"].get(key) for key in ("subject", "seq", "time")}
        told["message"] = kept
    return msgspec.json.encode(told)
