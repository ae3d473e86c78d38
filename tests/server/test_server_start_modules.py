"""A start imports what it serves with and no more: launchers wait for the first INFO."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.peers import free_port

SCRIPT = Path(__file__).parent / "modules_at_info.py"
# What no plain server needs before its first INFO, and what costs most of a start elsewhere.
NEVER = frozenset(
    b"""click rich h2 hpack cryptography bcrypt pyspark pyarrow numpy httptools tarfile lzma
    zoneinfo difflib html millstream.http.door millstream.topics millstream.dashboard.routes
    millstream.links.links millstream.pipelines millstream.spark millstream.client
    millstream.server.conf.document millstream.accounts.jwt millstream.nats.jetstream.snapshots
    millstream.nats.transport.websocket millstream.server.page_parts
    millstream.monitor.routes""".decode().split()
)
MONITORING = frozenset(
    b"""http httptools html millstream.http.door millstream.monitor.routes
    millstream.topics""".decode().split()  # the last for who may ask
)


def modules_at_info(directory: Path, *flags: str) -> set[str]:
    port = str(free_port())
    asked = [sys.executable, str(SCRIPT), port, str(directory), *flags]
    said = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True)
    return set(said.stdout.split())


@pytest.mark.parametrize(
    ("flags", "most"),
    [((), 330), (("-js",), 565), (("-js", "-m", "-1"), 608)],
)
def test_a_start_imports_few_modules_before_its_first_info(
    tmp_path: Path, flags: tuple[str, ...], most: int
) -> None:
    found = modules_at_info(tmp_path, *flags)
    unwanted = NEVER - (MONITORING if "-m" in flags else frozenset())
    assert sorted(found & unwanted) == []
    assert "millstream.kernel._hub" in found
    assert ("millstream.store.store" in found) == ("-js" in flags)
    assert len(found) <= most, sorted(found)
