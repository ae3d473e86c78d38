"""The two servers of a comparison, one pair for a file."""

from collections.abc import Iterator

import pytest

from support.broker import millstream
from support.peers import Peer, nats_server


@pytest.fixture(scope="module")
def reference() -> Iterator[Peer]:
    with nats_server() as peer:
        yield peer


@pytest.fixture(scope="module")
def candidate() -> Iterator[Peer]:
    with millstream() as peer:
        yield peer
