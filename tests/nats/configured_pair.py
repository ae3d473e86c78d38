"""One configuration file, one scenario, two server processes: ours and the real nats-server."""

import json
import sys
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from nats.aio.client import Client

import nats
from support.peers import free_port, nats_server_path, running

OURS = [sys.executable, "-m", "millstream", "nats-server"]


class Place:
    """Where a server is: clients by user, and its monitoring pages."""

    def __init__(self, port: int, http: int) -> None:
        self.url = f"nats://127.0.0.1:{port}"
        self.http = f"http://127.0.0.1:{http}"
        self._clients: list[Client] = []

    async def client(self, user: str = "") -> Client:
        """Connect, as ``user`` with the password ``secret`` when one is named."""
        named = {"user": user, "password": "secret"} if user else {}
        client = await nats.connect(self.url, allow_reconnect=False, **named)
        self._clients.append(client)
        return client

    def page(self, path: str) -> Any:
        """Return a monitoring page."""
        with urllib.request.urlopen(f"{self.http}/{path}", timeout=5) as answer:
            return json.loads(answer.read())

    async def close(self) -> None:
        """Disconnect everybody."""
        for client in self._clients:
            await client.close()


async def both(
    tmp_path: Path, config: str, scenario: Callable[[Place], Awaitable[list[Any]]]
) -> list[Any]:
    """Play the scenario on both; what they saw must agree, and is returned."""
    seen = []
    for name, command in (("ours", OURS), ("theirs", [nats_server_path()])):
        directory = tmp_path / name
        directory.mkdir()
        conf = directory / "server.conf"
        conf.write_text(config.replace("DIRECTORY", str(directory / "data")))
        port, http = free_port(), free_port()
        command = [*command, "-c", str(conf), "-a", "127.0.0.1"]
        command += ["-p", str(port), "-m", str(http)]
        with running(name, command, port, directory, http):
            place = Place(port, http)
            try:
                seen.append(await scenario(place))
            finally:
                await place.close()
    assert [pair for pair in zip(*seen, strict=True) if pair[0] != pair[1]] == []
    return seen[0]
