"""The monitoring endpoints as one table of routes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from millstream.errors import BadRequest, ConnectionNotFound
from millstream.http.number import whole_number
from millstream.http.request import Request
from millstream.http.response import Answer, Response
from millstream.http.routes import Route
from millstream.monitor import (
    accountz,
    connz,
    health,
    index,
    jsz,
    links,
    metrics,
    parameters,
    stacks,
    subsz,
    varz,
)
from millstream.monitor.facts import Facts

Describe = Callable[[Facts, Request], dict[str, Any]]

HTML = b"text/html; charset=utf-8"
TEXT = b"text/plain; charset=utf-8"

DESCRIPTIONS: dict[str, tuple[Describe, str]] = {
    "/varz": (lambda facts, request: varz.describe(facts), "The server at a glance"),
    "/jsz": (
        lambda facts, request: jsz.describe(facts, jsz.JszQuery.of(request.query)),
        "What JetStream keeps",
    ),
    "/connz": (
        lambda facts, request: connz.describe(facts, connz.ConnzQuery.of(request.query)),
        "Connections, open and closed",
    ),
    "/accountz": (
        lambda facts, request: accountz.describe(facts, request.query.get("acc", "")),
        "Accounts",
    ),
    "/accstatz": (lambda facts, request: _accstatz(facts, request), "Traffic of each account"),
    "/subsz": (
        lambda facts, request: subsz.describe(facts, subsz.SubszQuery.of(request.query)),
        "Subscriptions",
    ),
    "/subscriptionsz": (
        lambda facts, request: subsz.describe(facts, subsz.SubszQuery.of(request.query)),
        "Subscriptions, by the longer name",
    ),
    "/routez": (
        lambda facts, request: links.describe_routes(facts, request.query),
        "Routes to other servers",
    ),
    "/leafz": (
        lambda facts, request: links.describe_leafs(facts, request.query),
        "Leafnodes",
    ),
    "/gatewayz": (
        lambda facts, request: _with_flag(links.describe_gateways, facts, request, "accs"),
        "Gateways",
    ),
    "/ipqueuesz": (
        lambda facts, request: _with_flag(links.describe_queues, facts, request, "all"),
        "Queues inside the server: there are none",
    ),
}


def monitor_routes(facts: Facts, index_path: str = "/") -> list[Route]:
    """Return every monitoring operation, bound to the server's facts.

    ``index_path`` is where the links to all of them are.
    """
    told = [
        Route("GET", path, partial(_tell, path, describe, facts), "read", summary)
        for path, (describe, summary) in DESCRIPTIONS.items()
    ]
    return [
        Route("GET", index_path, partial(_index, facts), "", "Links to all pages"),
        Route("GET", "/healthz", partial(_healthz, facts), "", "Say whether the server works"),
        Route("GET", "/metrics", partial(_metrics, facts), "read", "Figures for Prometheus"),
        Route("GET", "/raftz", partial(_raftz, facts), "read", "Raft groups: there are none"),
        Route("GET", "/stacksz", partial(_stacksz, facts), "read", "What the server does now"),
        *told,
    ]


def close_route(facts: Facts) -> Route:
    """Return what ends a client's connection, where the port may change anything at all."""
    return Route(
        "DELETE", "/connz/{cid}", partial(_close, facts), "admin", "Close a client's connection"
    )


async def _close(facts: Facts, request: Request) -> Answer:
    cid = whole_number(request.params["cid"], 2**63)
    if cid is None:
        raise BadRequest("cid is the number that /connz shows")
    if not facts.close_connection(cid):
        raise ConnectionNotFound(f"no open connection has the cid {cid}")
    return Response(200, msgspec.json.encode({"cid": cid, "closed": True}))


async def _tell(path: str, describe: Describe, facts: Facts, request: Request) -> Answer:
    _count(facts, path)
    return _pretty(describe(facts, request))


async def _healthz(facts: Facts, request: Request) -> Answer:
    _count(facts, "/healthz")
    code, shown = health.describe(facts, health.HealthQuery.of(request.query))
    return Response(code, msgspec.json.encode(shown))


async def _metrics(facts: Facts, request: Request) -> Answer:
    _count(facts, "/metrics")
    text = await metrics.describe(facts, request.query.get("prefix", ""))
    return Response(200, text, metrics.CONTENT_TYPE)


async def _raftz(facts: Facts, request: Request) -> Answer:
    _count(facts, "/raftz")
    return Response(404, links.NO_RAFT, TEXT)


async def _stacksz(facts: Facts, request: Request) -> Answer:
    _count(facts, "/stacksz")
    return Response(200, stacks.describe(), TEXT)


async def _index(facts: Facts, request: Request) -> Answer:
    _count(facts, "/")
    entries = [(path[1:], summary) for path, (_, summary) in DESCRIPTIONS.items()]
    entries.remove(("subscriptionsz", "Subscriptions, by the longer name"))
    entries += [
        ("healthz", "Whether the server works"),
        ("metrics", "Figures for Prometheus"),
        ("stacksz", "What the server does now"),
    ]
    return Response(200, index.page(entries), HTML)


def _accstatz(facts: Facts, request: Request) -> dict[str, Any]:
    return accountz.describe_statistics(facts, parameters.flag(request.query, "unused"))


def _with_flag(
    describe: Callable[[Facts], dict[str, Any]], facts: Facts, request: Request, name: str
) -> dict[str, Any]:
    """Describe something that a switch would detail, were there anything to detail."""
    parameters.flag(request.query, name)
    return describe(facts)


def _count(facts: Facts, path: str) -> None:
    facts.requests[path] = facts.requests.get(path, 0) + 1


def _pretty(content: dict[str, Any]) -> Response:
    """Answer so that people can read it, as these are mostly read by people with curl."""
    return Response(200, msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
