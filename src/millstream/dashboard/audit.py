"""Audit: who changed what over HTTP, kept as one stream of the global account.

It is the operator's: entries name the account where a change happened, but take nothing of its
quota, and its own keys cannot remove them.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.clock import Clock
from millstream.errors import MillstreamError
from millstream.http.request import Caller, Request
from millstream.http.response import Answer
from millstream.http.routes import Route
from millstream.message import NewRecord
from millstream.streams.config.config import StreamConfig

if TYPE_CHECKING:
    from millstream.http.routes import Handler
    from millstream.streams.catalog import Catalog
    from millstream.streams.stream import Stream

log = logging.getLogger(__name__)

STREAM = "millstream-audit"
ACCOUNT = "$G"
KEPT_MS = 90 * 86_400_000
MOST_RECORDS = 1_000_000
MOST_BODY = 4096  # of what was asked, kept with the entry
AUDITED = ("admin", "delete")


class Audit:
    """Writes an entry for every change that a credential made; without credentials it rests."""

    def __init__(
        self,
        catalog: "Catalog",
        clock: Clock,
        is_guarded: Callable[[], bool],
        name_of: Callable[[str], str],
    ) -> None:
        """``is_guarded`` says whether callers must say who they are, ``name_of`` names a key."""
        self._catalog = catalog
        self._clock = clock
        self._is_guarded = is_guarded
        self._name_of = name_of

    def over(self, route: Route) -> Route:
        """Return a route whose changes are written down; one that changes nothing as it is."""
        if route.method == "GET" or not set(AUDITED) & set(route.scope.split("+")):
            return route

        async def handler(request: Request) -> Answer:
            return await self._watched(route.handler, request)

        return msgspec.structs.replace(route, handler=handler)

    async def _watched(self, handler: "Handler", request: Request) -> Answer:
        try:
            answer = await handler(request)
        except MillstreamError as error:
            await self.note(request, error.http_status, error.code)
            raise
        await self.note(request, answer.status)
        return answer

    async def note(self, request: Request, status: int, error: str = "") -> None:
        """Write an entry; one that cannot be written is said in the log instead."""
        if not self._is_guarded():
            return
        entry = self._entry(request, status, error)
        try:
            stream = await self._stream()
            await stream.append([NewRecord(b"", msgspec.json.encode(entry))])
        except MillstreamError as failure:
            log.error("audit entry not written: %s entry=%s", failure, entry)

    def _entry(self, request: Request, status: int, error: str) -> dict[str, Any]:
        caller: Caller = request.caller
        entry: dict[str, Any] = {
            "time": self._clock.time_ns() // 1_000_000,
            "who": self._name_of(caller.key) or "anyone",
            "account": caller.account,
            "from": request.peer,
            "method": request.method,
            "path": request.path,
            "status": status,
        }
        if error:
            entry["error"] = error
        if request.query_string:
            entry["query"] = request.query_string[:MOST_BODY]
        if request.body:
            entry["body"] = request.body[:MOST_BODY].decode("utf-8", "replace")
        return entry

    async def _stream(self) -> "Stream":
        found = self._catalog.find(STREAM, ACCOUNT)
        if found is not None:
            return found
        wish = {"ttl_ms": KEPT_MS, "cap_records": MOST_RECORDS, "durability": "fsync"}
        config = msgspec.structs.replace(
            StreamConfig.from_topic(STREAM, wish), deny_delete=True, deny_purge=True
        )
        made, _ = await self._catalog.create(config, ACCOUNT)
        return made
