"""What every test of the kernel cleans up."""

from collections.abc import Iterator

import pytest
from hub_recorder import close_hubs


@pytest.fixture(autouse=True)
def no_open_hubs() -> Iterator[None]:
    yield
    close_hubs()
