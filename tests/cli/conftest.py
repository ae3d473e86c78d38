"""The command line in this process, against both servers; nobody's own contexts are read."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.broker import millstream
from support.peers import Peer, nats_server


@pytest.fixture(autouse=True)
def _no_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("NATS_URL", "MILLSTREAM_HTTP_URL", "MILLSTREAM_TOKEN", "MILLSTREAM_CONTEXT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def ours() -> Iterator[Peer]:
    with millstream() as running:
        yield running


@pytest.fixture(scope="module", params=["ours", "theirs"])
def either(request: pytest.FixtureRequest) -> Iterator[Peer]:
    with millstream() if request.param == "ours" else nats_server(jetstream=True) as running:
        yield running
