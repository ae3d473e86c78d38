"""A whole server in this process, asked without a socket; keys as its environment would give."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from millstream.accounts.api_keys import parse_keys
from millstream.clock import SystemClock
from millstream.http.request import Request
from millstream.http.response import Answer, Response, StreamedResponse, Upgraded
from millstream.server.build import ServerParts, build
from millstream.server.command_line.serve_options import load_serve
from millstream.server.http_parts import routes
from millstream.server.server import Server


class Asked:
    """Requests to the route table of a server, each with the key that it is given."""

    def __init__(self, app: Any, parts: ServerParts) -> None:
        self._app = app
        self.parts = parts

    async def send(
        self,
        method: str,
        target: str,
        key: str = "",
        body: object = None,
        raw: bytes = b"",
        **headers: str,
    ) -> Answer:
        path, _, query = target.partition("?")
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        if key:
            pairs.append((b"authorization", f"Bearer {key}".encode()))
        if body is not None:
            raw = json.dumps(body).encode()
        if raw and "content-type" not in headers:
            pairs.append((b"content-type", b"application/json"))
        answer: Answer = await self._app(Request(method, path, query, pairs, raw))
        return answer

    async def status(self, method: str, target: str, key: str = "", **more: Any) -> int:
        answer = await self.send(method, target, key, **more)
        if isinstance(answer, StreamedResponse):
            await answer.chunks.aclose()  # type: ignore[attr-defined]
        elif isinstance(answer, Upgraded):
            answer.refuse()
        return answer.status

    async def json(self, method: str, target: str, key: str = "", **more: Any) -> Any:
        answer = await self.send(method, target, key, **more)
        assert isinstance(answer, Response)
        return json.loads(answer.body)


@asynccontextmanager
async def asked(directory: Path, keys: str = "", **values: Any) -> AsyncIterator[Asked]:
    """Serve a directory; ``keys`` are written as in ``TOPICS_API_KEYS``."""
    given = {"port": 0, "http_port": 0, "data_dir": directory / "data", **values}
    if keys:
        given["api_keys"] = parse_keys(keys)
    options = load_serve(given).options
    parts = build(options, asyncio.get_running_loop(), SystemClock())
    server = Server(options, parts)
    await server.start()
    try:
        yield Asked(routes(options, parts.facts, parts.http.page, parts.http.gate), parts)
    finally:
        await server.stop()
