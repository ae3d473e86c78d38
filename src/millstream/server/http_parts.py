"""The HTTP side of a server: its port, who may use it, the API and the page.

A module of its own, so that a server without an HTTP port never imports it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from millstream.clock import Clock
from millstream.dashboard.masking import Masking
from millstream.http.door import HttpDoor
from millstream.http.limits import Limits as HttpLimits
from millstream.http.request import Request
from millstream.http.response import Answer
from millstream.http.routes import Routes
from millstream.monitor.answers import App, counted
from millstream.monitor.facts import Facts
from millstream.monitor.routes import monitor_routes
from millstream.nats.door import NatsDoor
from millstream.server.access.http_gate import HttpGate, gate_of
from millstream.server.options.options import HttpCaps, Options

if TYPE_CHECKING:
    from millstream.server.build import Guards, Runtime
    from millstream.server.kept_parts import KeptParts
    from millstream.server.page_parts import PageParts


class HttpParts(msgspec.Struct, frozen=True):
    """What is there only where an HTTP port is open."""

    door: HttpDoor
    gate: HttpGate | None
    page: "PageParts | None"


def http_parts(
    options: Options,
    facts: Facts,
    nats: NatsDoor,
    guard: "Guards",
    kept: "KeptParts | None",
    runtime: "Runtime",
) -> HttpParts:
    """Return the HTTP port with all that it serves; nothing listens yet."""
    gate = gate_to(options, guard, kept, runtime.clock)
    page = page_of(options, facts, nats, kept, gate)
    return HttpParts(http_door(options, facts, kept, gate, page, runtime), gate, page)


def page_of(
    options: Options, facts: Facts, nats: NatsDoor, kept: "KeptParts | None", gate: HttpGate | None
) -> "PageParts | None":
    """Return the API and the dashboard over it, None where the HTTP port only tells."""
    if kept is None or options.jetstream is None or not options.monitor.topics:
        return None
    from millstream.server.page_parts import PageParts

    assert kept.topics is not None
    return PageParts(
        facts,
        kept.topics,
        kept.shared.consumers,
        nats.hub,
        nats.sessions.reception,
        gate,
        str(options.jetstream.directory),
        Masking(options.monitor.mask_rules),
    )


def http_door(
    options: Options,
    facts: Facts,
    kept: "KeptParts | None",
    gate: HttpGate | None,
    page: "PageParts | None",
    runtime: "Runtime",
) -> HttpDoor:
    """Return the HTTP port: monitoring, and topics within their caps."""
    caps, topics = options.monitor.caps, None if kept is None else kept.topics
    served = counted(routes(options, facts, page, gate), facts.statuses, facts.http_traffic)
    door = HttpDoor(
        runtime.loop,
        served if runtime.fleet is None else checked(served, runtime.fleet.check),
        runtime.clock,
        HttpLimits(body_bytes=caps.max_body_bytes),
        hosts=options.monitor.allowed_hosts,
        turns=topics.turns if topics is not None else None,
        supervisor=runtime.supervisor,
        unread=topics.unread if topics is not None else None,
    )
    if topics is not None:
        topics.cap(**capped(caps))
    return door


def checked(app: App, check: Callable[[], None]) -> App:
    """Have a member of a fleet make sure that it may answer, before it looks at a request."""

    async def answer(request: Request) -> Answer:
        check()
        return await app(request)

    return answer


def capped(caps: HttpCaps) -> dict[str, int]:
    """Return the caps that the topics keep themselves."""
    return {
        "max_topics": caps.max_topics,
        "max_routers": caps.max_routers,
        "max_watch_sessions": caps.max_watch_sessions,
        "max_sse_connections": caps.max_sse_connections,
        "max_sse_per_key": caps.max_sse_connections_per_key,
        "max_total_bytes": caps.max_total_bytes,
        "shortest_heartbeat_ms": caps.test_min_heartbeat_ms,
        "max_unread_bytes": caps.max_unread_bytes,
        "max_unread_per_key": caps.max_unread_bytes_per_key,
        "max_unread_per_connection": caps.max_unread_bytes_per_connection,
    }


def gate_to(
    options: Options, guard: "Guards", kept: "KeptParts | None", clock: Clock
) -> HttpGate | None:
    """Return who may use the HTTP port, and whose streams end when they no longer may."""
    if kept is None:
        return gate_of(options, guard.reception, clock, None, lambda: None)
    wake = kept.topics.wake if kept.topics is not None else lambda: None
    return gate_of(options, guard.reception, clock, kept.shared.catalog, wake)


def routes(
    options: Options, facts: Facts, page: "PageParts | None", gate: HttpGate | None = None
) -> Routes:
    """Return what the HTTP port serves: monitoring, and the API with its page where asked for."""
    base = options.monitor.base_path.rstrip("/")
    found = monitor_routes(facts, "/" if page is None else "/monitoring")
    table = [msgspec.structs.replace(route, pattern=base + route.pattern) for route in found]
    if page is not None:
        from millstream.topics.openapi import openapi_route

        table += page.routes()
        table.append(openapi_route(lambda: table))
    return Routes(table, None if gate is None else gate.authorize)
