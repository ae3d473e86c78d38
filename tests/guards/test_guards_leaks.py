import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from support import leaks
from support.kernel_build import stale_modules
from support.leaks import holdings, left_behind, without_stray_tasks


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks, "PATIENCE", 0.05)


def test_an_open_file_is_named(tmp_path: Path) -> None:
    before = holdings()
    with open(tmp_path / "forgotten", "w"):
        assert "forgotten" in left_behind(before)[0]
    assert left_behind(before) == []


def test_a_running_thread_is_named() -> None:
    before, stop = holdings(), threading.Event()
    thread = threading.Thread(target=stop.wait, name="forgotten")
    thread.start()
    assert left_behind(before) == ["thread forgotten"]
    stop.set()
    thread.join()


def test_a_child_process_is_named() -> None:
    before = holdings()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert any(line.startswith(f"process {child.pid}") for line in left_behind(before))
    child.communicate()
    assert left_behind(before) == []


async def test_a_stray_task_fails_the_test_that_started_it() -> None:
    started: list[asyncio.Task[None]] = []

    async def careless() -> None:
        started.append(asyncio.create_task(asyncio.Event().wait(), name="forgotten"))  # type: ignore[arg-type]

    with pytest.raises(AssertionError, match="forgotten"):
        await without_stray_tasks(careless)()
    started[0].cancel()


def test_a_module_compiled_before_its_source_changed_is_stale(tmp_path: Path) -> None:
    for name in ("_a.pyx", "_a.cpython.so", "_b.pyx", "_b.cpython.so", "_b.pxd", "_c.pyx"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (100, 100))
    assert stale_modules(tmp_path) == ["_c"]
    os.utime(tmp_path / "_b.pxd", (200, 200))
    assert stale_modules(tmp_path) == ["_b", "_c"]
