"""/openapi.json: the whole HTTP surface, described from the very table that serves it."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from millstream import __version__
from millstream.http.request import Request
from millstream.http.response import Answer, Response
from millstream.http.routes import Route
from millstream.topics.operation_notes import NAMES, NOTES, Usage
from millstream.topics.schemas import (
    COUNT,
    FREE,
    MILLISECONDS,
    SWITCH,
    TEXT,
    Schema,
    components,
    ref,
)

PATH = "/openapi.json"
JSON, EVENTS, OCTETS = "application/json", "text/event-stream", "application/octet-stream"
PLAIN, HTML, SCRIPT = "text/plain", "text/html", "text/javascript"
LINES = (
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
    "application/x-jsonlines",
)

_PARAMETER = re.compile(r"\{(\w+)\}")

_REFUSALS = {
    "400": "The server cannot read or carry out the request; the message says why",
    "401": "A key is needed",
    "403": "This key may not do that",
    "404": "It does not exist",
    "406": "This route sends text/event-stream",
    "409": "The topic is not of that kind, or does not allow it",
    "413": "The body is too large, as sent or unpacked",
    "415": "This route does not read a body of this type",
    "422": "The topic is full and refuses more",
    "429": "Too many requests or too much data at once; try again after Retry-After seconds",
    "503": "Not now; the message says why",
    "504": "Nobody answered in time",
    "507": "The disk is full; writes resume when there is room",
}
_ALWAYS = ("400", "404", "429", "503")
_WITH_KEYS = ("401", "403")
_WITH_BODY = ("409", "413", "415", "507")


class Details(msgspec.Struct, frozen=True):
    """What the table does not say about an operation."""

    query: dict[str, Schema] = msgspec.field(default_factory=dict)
    headers: dict[str, Schema] = msgspec.field(default_factory=dict)
    body: dict[str, Schema] = msgspec.field(default_factory=dict)  # media type → shape
    answer: Schema = msgspec.field(default_factory=lambda: {"type": "object"})
    media: str = JSON
    creates: bool = False  # 201 beside 200
    upgrades: bool = False  # 101 instead of 200
    refuses: tuple[str, ...] = ()  # statuses beside those that its kind of operation has
    refusal: Schema | None = None  # what a refusal looks like, where it is not an Error
    absent: str = ""  # the media type of a 404, where it is not an Error


_PAGE = {"page_size": COUNT, "cursor": TEXT}
_CUT = {"offset": {"type": "integer"}, "limit": {"type": "integer"}}
_SUBSZ = Details({"subs": SWITCH, "test": TEXT, "acc": TEXT, **_CUT})


def _json(name: str) -> Schema:
    """Return a text that is JSON of a shape."""
    return {"type": "string", "contentMediaType": JSON, "contentSchema": ref(name)}


_BESIDE_LINES = {"description": "for a body with one record per line; otherwise it is in the body"}
_OF_LINES = {
    "node": {**TEXT, **_BESIDE_LINES},
    "idempotency_key": {**TEXT, **_BESIDE_LINES},
    "create": {**SWITCH, **_BESIDE_LINES},
    "config": {**_json("TopicConfig"), **_BESIDE_LINES},
    "disable_backpressure": {**SWITCH, **_BESIDE_LINES},
}

DETAILS: dict[tuple[str, str], Details] = {
    ("GET", "/v0/health"): Details(answer=ref("Health")),
    ("GET", "/v0/topics"): Details(
        {"prefix": TEXT, "touch": SWITCH, **_PAGE}, answer=ref("TopicList")
    ),
    ("PUT", "/v0/topics/{topic}"): Details(
        body={JSON: ref("TopicConfig")}, answer=ref("TopicChanged"), creates=True
    ),
    ("GET", "/v0/topics/{topic}"): Details({"touch": SWITCH}, answer=ref("Topic")),
    ("DELETE", "/v0/topics/{topic}"): Details(
        {"if_empty": SWITCH}, answer=ref("TopicDeleted"), refuses=("409", "507")
    ),
    ("POST", "/v0/topics/{topic}"): Details(
        {"return_seqs": SWITCH, **_OF_LINES},
        {"Idempotency-Key": TEXT},
        {JSON: ref("WriteBody"), **dict.fromkeys(LINES, TEXT)},
        ref("Written"),
        creates=True,
        refuses=("422",),
    ),
    ("POST", "/v0/topics/{topic}/diff"): Details(body={JSON: ref("DiffBody")}, answer=ref("Page")),
    ("POST", "/v0/topics/{topic}/delete"): Details(
        body={JSON: ref("DeleteBody")}, answer=ref("RecordsDeleted")
    ),
    ("GET", "/v0/topics/{topic}/tail"): Details(
        {
            "from_seq": COUNT,
            "limit": COUNT,
            "heartbeat_ms": MILLISECONDS,
            "include_tags": SWITCH,
            "include_meta": SWITCH,
            "node": {**TEXT, "description": "node whose records the server leaves out"},
            "tag": TEXT,
            "subject": TEXT,
            "since": MILLISECONDS,
            "until": MILLISECONDS,
            "filter": _json("FilterBody"),
        },
        answer=TEXT,
        media=EVENTS,
    ),
    ("GET", "/v0/topics/{topic}/plan"): Details({"from_seq": COUNT}, answer=ref("ReadPlan")),
    ("GET", "/v0/topics/{topic}/frames"): Details(
        {"from_seq": COUNT, "to_seq": COUNT, "max_bytes": COUNT}, answer=TEXT, media=OCTETS
    ),
    ("POST", "/v0/topics/{topic}/claim"): Details(
        body={JSON: ref("ClaimBody")}, answer=ref("Claimed")
    ),
    ("POST", "/v0/topics/{topic}/ack"): Details(body={JSON: ref("AckBody")}),
    ("POST", "/v0/topics/{topic}/nack"): Details(body={JSON: ref("NackBody")}),
    ("POST", "/v0/topics/{topic}/extend"): Details(body={JSON: ref("ExtendBody")}),
    ("GET", "/v0/topics/{topic}/work"): Details(
        {"node": TEXT, "max": COUNT, "lease_ms": MILLISECONDS},
        answer=TEXT,
        media=EVENTS,
        refuses=("409",),
    ),
    ("PUT", "/v0/routers/{router}"): Details(
        body={JSON: ref("RouterBody")}, answer=ref("Router"), creates=True
    ),
    ("GET", "/v0/routers/{router}"): Details(answer=ref("Router")),
    ("DELETE", "/v0/routers/{router}"): Details(refuses=("507",)),
    ("GET", "/v0/routers"): Details(
        {"prefix": TEXT, "source": TEXT, "dest": TEXT, **_PAGE}, answer=ref("RouterList")
    ),
    ("POST", "/v0/topics/{topic}/redrive"): Details(
        body={JSON: ref("RedriveBody")}, answer=ref("Redriven"), refuses=("422",)
    ),
    ("POST", "/v0/watch"): Details(
        {"lenient": SWITCH}, body={JSON: ref("WatchBody")}, answer=ref("Watch")
    ),
    ("GET", "/v0/watch/{wid}"): Details(answer=TEXT, media=EVENTS),
    ("GET", "/v0/ws"): Details(upgrades=True),
    ("GET", "/v0/metrics"): Details(answer=TEXT, media=PLAIN),
    ("GET", "/raftz"): Details(absent=PLAIN),
    ("GET", "/stacksz"): Details(answer=TEXT, media=PLAIN),
    ("GET", "/metrics"): Details({"prefix": TEXT}, answer=TEXT, media=PLAIN),
    ("GET", "/"): Details(answer=TEXT, media=HTML),
    ("GET", "/healthz"): Details(
        {
            "js-enabled-only": SWITCH,
            "js-server-only": SWITCH,
            "account": TEXT,
            "stream": TEXT,
            "consumer": TEXT,
            "details": SWITCH,
        },
        answer=ref("Health"),
        refusal=ref("Health"),
    ),
    ("GET", "/monitoring"): Details(answer=TEXT, media=HTML),
    ("GET", "/ui/{file}"): Details(answer=TEXT, media=SCRIPT),
    ("GET", "/ui/{folder}/{file}"): Details(answer=TEXT, media=SCRIPT),
    ("DELETE", "/connz/{cid}"): Details(),
    ("POST", "/v0/topics/{topic}/browse"): Details(
        body={JSON: ref("BrowseBody")}, answer=ref("Messages")
    ),
    ("GET", "/v0/topics/{topic}/consumers"): Details(_PAGE, answer=ref("ConsumerList")),
    ("GET", "/v0/consumers"): Details(_PAGE, answer=ref("ConsumerList")),
    ("PUT", "/v0/topics/{topic}/consumers/{consumer}"): Details(body={JSON: FREE}, creates=True),
    ("DELETE", "/v0/topics/{topic}/consumers/{consumer}"): Details(refuses=("507",)),
    ("POST", "/v0/topics/{topic}/consumers/{consumer}/pause"): Details(
        body={JSON: ref("PauseBody")}
    ),
    ("POST", "/v0/topics/{topic}/consumers/{consumer}/reset"): Details(
        body={JSON: ref("ResetBody")}
    ),
    ("POST", "/v0/publish"): Details(body={JSON: ref("MessageBody")}, refuses=("504",)),
    ("POST", "/v0/request"): Details(body={JSON: ref("MessageBody")}, refuses=("504",)),
    ("GET", "/v0/feed"): Details(answer=TEXT, media=EVENTS),
    ("GET", "/connz"): Details(
        {
            "sort": TEXT,
            "auth": SWITCH,
            "subs": {"enum": ["true", "false", "1", "0", "detail"]},
            "cid": COUNT,
            "state": {"enum": ["open", "closed", "any", "all"]},
            "user": TEXT,
            "acc": TEXT,
            **_CUT,
        }
    ),
    ("GET", "/subsz"): _SUBSZ,
    ("GET", "/subscriptionsz"): _SUBSZ,
    ("GET", "/accountz"): Details({"acc": TEXT}),
    ("GET", "/accstatz"): Details({"unused": SWITCH}),
    ("GET", "/routez"): Details({"subs": SWITCH}),
    ("GET", "/leafz"): Details({"subs": SWITCH}),
    ("GET", "/gatewayz"): Details({"accs": SWITCH}),
    ("GET", "/jsz"): Details(
        {
            "acc": TEXT,
            "accounts": SWITCH,
            "streams": SWITCH,
            "consumers": SWITCH,
            "config": SWITCH,
            **_CUT,
        }
    ),
}


def openapi_route(table: Callable[[], Iterable[Route]]) -> Route:
    """Return the route that describes ``table``, which is asked when somebody wants to know."""

    async def show(request: Request) -> Answer:
        return Response(200, msgspec.json.encode(document(table())))

    return Route("GET", PATH, show, "", "Describe this API")


def document(table: Iterable[Route]) -> dict[str, Any]:
    """Return the description of a table of routes."""
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        paths.setdefault(route.pattern, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "millstream",
            "version": __version__,
            "summary": "Topics, queues and monitoring of one millstream server",
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": components(),
            "responses": {f"Refused{code}": _refusal(text) for code, text in _REFUSALS.items()},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    details = DETAILS.get((route.method, route.pattern), Details())
    note = NOTES.get((route.method, route.pattern), Usage(route.summary))
    shown: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "description": note.text,
        "tags": ["topics" if route.pattern.startswith("/v0/") else "monitoring"],
        "security": [{"key": route.scope.split("+")}] if route.scope else [],
        "responses": _responses(route, details),
    }
    parameters = [_parameter(name, "path", TEXT) for name in _PARAMETER.findall(route.pattern)]
    parameters += [_parameter(name, "query", schema) for name, schema in details.query.items()]
    parameters += [_parameter(name, "header", schema) for name, schema in details.headers.items()]
    if route.query_token:
        parameters.append(_parameter("token", "query", TEXT))
    if parameters:
        examples = {**NAMES, **note.parameters}
        shown["parameters"] = [
            {**each, "example": examples[each["name"]]}
            if each["in"] == "path" or each["name"] in note.parameters
            else each
            for each in parameters
        ]
    if details.body:
        content: dict[str, Any] = {m: {"schema": schema} for m, schema in details.body.items()}
        if note.body is not None:
            content[JSON]["example"] = note.body
        shown["requestBody"] = {"content": content}
    return shown


def _operation_id(route: Route) -> str:
    words = re.sub(r"\W+", "_", route.pattern).strip("_") or "index"
    return f"{route.method.lower()}_{words}"


def _parameter(name: str, place: str, schema: Schema) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def _responses(route: Route, details: Details) -> dict[str, Any]:
    content = {"content": {details.media: {"schema": details.answer}}}
    found: dict[str, Any] = {"200": {"description": "Done", **content}}
    if details.upgrades:
        found = {"101": {"description": "The connection is a WebSocket from here on"}}
    if details.creates:
        found["201"] = {"description": "Done, and created", **content}
    for code in sorted(_refusals(route, details)):
        found[code] = {"$ref": f"#/components/responses/Refused{code}"}
        if details.refusal is not None:
            found[code] = _refusal(_REFUSALS[code], details.refusal)
    if details.absent:
        found["404"] = {
            "description": "There is none",
            "content": {details.absent: {"schema": TEXT}},
        }
    return found


def _refusals(route: Route, details: Details) -> set[str]:
    """Return the statuses other than success that an operation may answer."""
    codes = {*_ALWAYS, *details.refuses}
    if route.scope or route.believed:
        codes.update(_WITH_KEYS)
    if details.body:
        codes.update(_WITH_BODY)
    if details.media == EVENTS:
        codes.add("406")
    return codes


def _refusal(description: str, schema: Schema | None = None) -> dict[str, Any]:
    return {"description": description, "content": {JSON: {"schema": schema or ref("Error")}}}
