"""Sessions whose workers are not this process's children: Spark Connect, and a cluster."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from millstream.client import connect
from support.broker import millstream

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

JOB = Path(__file__).with_name("elsewhere_job.py")
RECORDS, SUBJECTS = 100, 4


def fill(url: str) -> None:
    """Make the two streams; the first gets records on several subjects."""
    with connect(url) as client:
        for name in ("ORDERS", "OUT"):
            config = {"name": name, "subjects": [f"{name.lower()}.>"]}
            answer = client.request(f"$JS.API.STREAM.CREATE.{name}", json.dumps(config).encode())
            assert "error" not in json.loads(answer.payload)
        for number in range(RECORDS):
            client.request(f"orders.{number % SUBJECTS}", b'{"id":%d}' % number)


@pytest.mark.parametrize("kind", ["connect", "cluster"])
def test_streams_are_read_written_and_copied(tmp_path: Path, kind: str) -> None:
    if kind == "connect":
        pytest.importorskip(
            "grpc", reason="Spark Connect needs grpcio: pip install pyspark[connect]"
        )
    environment = dict(os.environ)
    environment.pop("PYSPARK_PYTHON", None)
    if kind == "connect":  # the server's Python must have millstream, and is told when it starts
        environment["PYSPARK_PYTHON"] = sys.executable
    with millstream() as peer:
        url = f"nats://127.0.0.1:{peer.port}"
        fill(url)
        command = [sys.executable, str(JOB), kind, url, str(tmp_path / "checkpoint")]
        ran = subprocess.run(
            command,
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=540,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr[-3000:]
    (line,) = [each for each in ran.stdout.splitlines() if "seen {" in each]
    seen: dict[str, Any] = json.loads(line.partition("seen ")[2])
    each = [[f"orders.{number}", RECORDS // SUBJECTS] for number in range(SUBJECTS)]
    assert seen["auto"] == seen["files"] == seen["broker"] == each
    assert seen["table"] == seen["count"] == RECORDS
    assert seen["ended"]
    assert seen["written"] == [["out.x", RECORDS], ["out.y", RECORDS]]
