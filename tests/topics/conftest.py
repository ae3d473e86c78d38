"""The topics API of a fresh directory."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from topics_api import Api
from topics_socket import Site, opened


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    made = Api(tmp_path / "data")
    yield made
    made.catalog.close()
    made.store.close()


@pytest.fixture
async def site(api: Api) -> AsyncIterator[Site]:
    async with opened(api) as made:
        yield made
