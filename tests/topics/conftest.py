"""The topics API of a fresh directory."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from topics_api import Api
from topics_socket import Site, opened

from millstream.http.door import HttpDoor


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    made = Api(tmp_path / "data")
    yield made
    made.catalog.close()
    made.store.close()


@pytest.fixture
async def port(api: Api) -> AsyncIterator[int]:
    """The port of a real HTTP door in front of the API."""
    loop = asyncio.get_running_loop()
    door = HttpDoor(loop, api.routes, api.clock, on_stop=api.topics.stop)
    yield await door.start("127.0.0.1", 0)
    await door.stop()


@pytest.fixture
async def site(api: Api) -> AsyncIterator[Site]:
    async with opened(api) as made:
        yield made
