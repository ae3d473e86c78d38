"""Route, Routes: the one declarative table from method and path to handler."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

import msgspec

from millstream.errors import MillstreamError, Unauthorized
from millstream.http.response import Answer, Response, error_body, error_response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from millstream.http.request import Request

    Handler = Callable[[Request], Awaitable[Answer]]
    Authorize = Callable[[Request, "Route"], Callable[[], None] | None]

log = logging.getLogger(__name__)

MOST_FOUND = 1024  # paths whose route is remembered
LONGEST_FOUND = 256


class Route(msgspec.Struct, frozen=True):
    """One operation: ``scope`` is what a key needs ("" = nothing), ``summary`` documents it."""

    method: str
    pattern: str  # "/v0/topics/{topic}/diff"
    handler: Handler
    scope: str
    summary: str
    query_token: bool = False  # whether ``?token=`` may carry the credential
    believed: bool = False  # whether a caller must say who it is even where no scope is needed
    parts: bool = False  # whether one who may read only some of a topic is answered with that


class _Node:
    __slots__ = ("branches", "names", "routes")

    def __init__(self) -> None:
        self.branches: dict[str | None, _Node] = {}  # None: the {parameter} branch
        self.routes: dict[str, Route] = {}
        self.names: dict[str, tuple[str, ...]] = {}


class Routes:
    """An application over a table of routes; errors of the tree become their HTTP answers.

    ``authorize`` runs before anything is looked at, with the route that matched, or raises; what
    it returns is called once the answer is known.
    """

    def __init__(self, routes: Iterable[Route], authorize: Authorize | None = None) -> None:
        self.table = tuple(routes)
        self._authorize = authorize
        self._root = _Node()
        self._found: dict[tuple[str, str], tuple[Route, dict[str, str]]] = {}
        for route in self.table:
            self._add(route)

    async def __call__(self, request: Request) -> Answer:
        """Answer a request; never raises but for cancellation."""
        leave: Callable[[], None] | None = None
        try:
            found = self._find(request)
            if isinstance(found, Response):
                if self._authorize is not None:
                    leave = self._authorize(request, NOWHERE)
                return found
            if self._authorize is not None:
                leave = self._authorize(request, found)
            return await found.handler(request)
        except Unauthorized as error:
            if error.wait:
                await asyncio.sleep(error.wait)
            return error_response(error)
        except MillstreamError as error:
            return error_response(error)
        except Exception:
            log.exception("request failed method=%s path=%r", request.method, request.path)
            return Response(500, error_body("internal", "the server failed; its log says why"))
        finally:
            if leave is not None:
                leave()

    def _add(self, route: Route) -> None:
        node, names = self._root, []
        for segment in route.pattern.split("/")[1:]:
            key: str | None = segment
            if segment.startswith("{"):
                names.append(segment[1:-1])
                key = None
            node = node.branches.setdefault(key, _Node())
        node.routes[route.method] = route
        node.names[route.method] = tuple(names)

    def _find(self, request: Request) -> Route | Response:
        """Return the route of a request and set its parameters, or what to answer instead."""
        key = request.method, request.path
        known = self._found.get(key)
        if known is not None:
            route, request.params = known
            return route
        found = self._walk(request)
        if isinstance(found, Route) and len(request.path) <= LONGEST_FOUND:
            if len(self._found) >= MOST_FOUND:
                self._found.clear()
            self._found[key] = found, request.params
        return found

    def _walk(self, request: Request) -> Route | Response:
        node, values = self._root, []
        for raw in request.path.split("/")[1:]:
            branch = node.branches.get(raw)
            if branch is None and raw:  # an empty segment is never a parameter
                branch = node.branches.get(None)
                values.append(raw)
            if branch is None:
                return Response(404, error_body("not_found", "no such route"))
            node = branch
        return self._pick(request, node, values)

    def _pick(self, request: Request, node: _Node, values: list[str]) -> Route | Response:
        method = request.method
        route = node.routes.get(method)
        if route is None and method == "HEAD":
            method = "GET"
            route = node.routes.get(method)
        if route is None:
            return _wrong_method(node)
        decoded = [_decode(value) for value in values]
        if any(value is None for value in decoded):
            return Response(400, error_body("invalid_request", "malformed percent-encoding"))
        request.params = {
            name: value or "" for name, value in zip(node.names[method], decoded, strict=True)
        }
        return route


def _wrong_method(node: _Node) -> Response:
    if not node.routes:
        return Response(404, error_body("not_found", "no such route"))
    allowed = ", ".join(sorted(node.routes)).encode()
    body = error_body("method_not_allowed", f"this path answers {allowed.decode()}")
    return Response(405, body, headers=((b"Allow", allowed),))


def _decode(raw: str) -> str | None:
    """Return a path segment percent-decoded, None where it is malformed."""
    if "%" not in raw:
        return raw
    escapes = raw.split("%")[1:]
    if any(len(e) < 2 or not set(e[:2]) <= set("0123456789abcdefABCDEF") for e in escapes):
        return None
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        return None


async def _nowhere(request: Request) -> Answer:
    return Response(404, error_body("not_found", "no such route"))


NOWHERE = Route("*", "", _nowhere, "", "whatever matches no route")
