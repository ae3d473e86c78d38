"""UrlSource: account JWTs that an HTTP server has, each below one URL."""

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from millstream.nats.resolvers.account_fetch import Found

log = logging.getLogger(__name__)

_LONGEST = 1 << 20
_SECONDS = 5.0


class UrlSource:
    """Fetches ``<url><account>``; whatever is no answer of 200 is none."""

    def __init__(self, loop: asyncio.AbstractEventLoop, url: str) -> None:
        self._loop = loop
        self._url = url
        self._tasks: set[asyncio.Task[None]] = set()

    def fetch(self, public: str, found: "Found") -> None:
        """Ask."""
        task = self._loop.create_task(self._ask(self._url + public, found))
        self._tasks.add(task)  # the loop itself would forget it
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, url: str, found: "Found") -> None:
        token = ""
        try:
            async with asyncio.timeout(_SECONDS):
                token = await get_text(url)
        except (OSError, ValueError, TimeoutError) as error:
            log.error("could not fetch %s: %s", url, error or "no answer in time")
        found(token)


async def get_text(url: str) -> str:
    """Return the body at an HTTP URL; raises ``OSError`` or ``ValueError``."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    context = ssl.create_default_context() if secure else None
    port = parts.port or (443 if secure else 80)
    reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=context)
    try:
        query = f"?{parts.query}" if parts.query else ""
        # HTTP/1.0: the answer comes in one piece, and ends with the connection.
        head = f"GET {parts.path or '/'}{query} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n"
        writer.write(head.encode())
        answer = bytearray()
        while more := await reader.read(1 << 16):
            answer += more
            if len(answer) > _LONGEST:
                raise ValueError(f"the answer is longer than {_LONGEST} bytes")
    finally:
        writer.close()
    return _body(bytes(answer))


def _body(answer: bytes) -> str:
    head, gap, body = answer.partition(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split()
    if not gap or len(words) < 2 or words[1] != b"200":
        raise ValueError(f"the answer is {b' '.join(words[1:3]).decode('latin-1') or 'empty'}")
    return body.decode("utf-8", "replace").strip()
