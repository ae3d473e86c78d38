"""The topics API of a fresh directory."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from topics_api import Api


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    made = Api(tmp_path / "data")
    yield made
    made.catalog.close()
    made.store.close()
