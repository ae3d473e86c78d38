"""Every compiled entry point under AddressSanitizer; MILLSTREAM_PROOF=1 goes on for ten minutes."""

import json
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from asan_build import asan_build, asan_environment, asan_is_missing

from support import scale

MISSING = asan_is_missing()
FUZZER = Path(__file__).parent / "kernel_fuzzer.py"
TARGETS = ["hub", "interest", "scan", "frames", "index", "batch"]
REPORT = 99  # the exit code that the sanitizer is told to use

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.xdist_group("fuzz"),
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]


def run(targets: list[str], seconds: float, log: Path) -> subprocess.CompletedProcess[str]:
    seed = str(secrets.randbits(32))
    command = [sys.executable, str(FUZZER), ",".join(targets), str(seconds), seed, str(log)]
    return subprocess.run(
        command,
        env=asan_environment(asan_build()),
        capture_output=True,
        text=True,
        timeout=seconds + 60,
    )


def test_no_entry_point_touches_memory_that_is_not_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "current"
    done = run(TARGETS, scale.count(15.0, 600.0), log)
    findings = 0 if done.returncode == 0 else 1
    executions = json.loads(done.stdout) if findings == 0 else {}
    with capsys.disabled():
        print(f"\nfuzz: executions={executions} findings={findings}")
    assert findings == 0, f"replay: {log.read_text()}\n{done.stderr[-8000:]}"
    assert all(executions[target] > 0 for target in TARGETS)


def test_a_planted_over_read_is_found(tmp_path: Path) -> None:
    log = tmp_path / "current"
    done = run(["planted"], 20.0, log)
    assert done.returncode == REPORT, done.stderr[-2000:]
    assert "heap-buffer-overflow" in done.stderr
    assert " planted " in log.read_text()
