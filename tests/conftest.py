"""Rules that every test obeys: nothing left behind, nothing stale, Spark only where it runs."""

import importlib.util
import inspect
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import uvloop

from support import scale
from support.java import spark_is_missing
from support.kernel_build import stale_and_imported, stale_modules
from support.leaks import holdings, left_behind, without_stray_tasks
from support.loop_holds import BOUND_MS, PLACE, LoopHolds, is_known, longest_in

# Under nohup, or in the background of a script, Ctrl-C is ignored, and so by every child process.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# These cannot even be imported without Spark's packages, so `make check` leaves them alone.
SPARK_IS_INSTALLED = all(importlib.util.find_spec(name) for name in ("pyspark", "pyarrow"))
collect_ignore = [] if SPARK_IS_INSTALLED else ["spark", "pipelines", "simulation"]

# Even the short forms of these take a while: `make test` runs them, `make check` does not.
SLOW_PLACES = {
    *("compat", "crash", "fuzz", "mutants", "packages", "simulation"),
    # Files elsewhere that sweep crashes, or start many servers, often beside nats-server.
    *(
        "test_backup_cli.py",
        "test_cli_messages.py",
        "test_cli_nats_server.py",
        "test_cli_repair.py",
    ),
    *("test_cli_serve.py", "test_cli_trace.py", "test_http_schemathesis.py"),
    *("test_jetstream_batches.py", "test_jetstream_differential.py", "test_nats_auth_clients.py"),
    *("test_nats_claim_updates.py", "test_queues_crash.py", "test_routers_crash.py"),
    *("test_server_cold_history.py", "test_server_cold_readers.py", "test_links_mirrors.py"),
    *("test_links_changes.py", "test_links_hostile.py"),
}


def pytest_report_header() -> str | None:
    """Say what is left out."""
    return None if SPARK_IS_INSTALLED else "tests/spark is left out: `make spark` installs Spark"


HOLDS = pytest.StashKey[LoopHolds]()

# No test asserts a time: a loaded machine is slow, not wrong.
hypothesis.settings.register_profile("millstream", deadline=None)
hypothesis.settings.load_profile("millstream")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Watch the tasks of every plain async test."""
    test = getattr(item, "obj", None)
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(test):
        item.obj = without_stray_tasks(item.obj)
    if SLOW_PLACES.intersection(item.path.relative_to(Path(__file__).parent).parts):
        item.add_marker(pytest.mark.slow)


def pytest_configure(config: pytest.Config) -> None:
    """Have the loops of all brokers watched; workers leave what they saw in one place."""
    if not hasattr(config, "workerinput"):
        place = Path(tempfile.mkdtemp(prefix="millstream-holds-"))
        os.environ[PLACE] = str(place)
        config.add_cleanup(lambda: shutil.rmtree(place, ignore_errors=True))
    holds = LoopHolds(Path(os.environ[PLACE]) / str(os.getpid()))
    holds.watch_asyncio()
    config.stash[HOLDS] = holds


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what kept a loop longest."""
    for hold in longest_in(Path(os.environ[PLACE]))[:3]:
        terminalreporter.write_line(f"loop held for {hold.ms:.1f} ms of CPU: {hold.what}")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse a stale kernel before workers start: one that stops by itself looks like a crash."""
    uvloop.new_event_loop().close()  # its first loop opens a pipe that the process keeps
    if session.config.getoption("numprocesses", None):
        _refuse(stale_modules())


def _refuse(stale: list[str]) -> None:
    if stale and os.environ.get("MILLSTREAM_STALE_KERNEL") != "ok":
        raise pytest.UsageError(f"{', '.join(stale)} changed since it was compiled: `make build`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse a stale kernel, and skip Spark's tests where it cannot run."""
    if not hasattr(config, "workerinput"):
        _refuse(stale_and_imported())
    spark = [item for item in items if item.get_closest_marker("spark")]
    if spark and (reason := spark_is_missing()) is not None:
        for item in spark:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def hold_no_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test in which a broker's callback kept its loop above the bound."""
    holds = request.config.stash[HOLDS]
    holds.new()
    yield
    test = request.node.nodeid
    long = [hold for hold in holds.new() if hold.ms > BOUND_MS and not is_known(hold, test)]
    if long:
        told = "; ".join(f"{hold.what} for {hold.ms:.1f} ms of CPU" for hold in long)
        pytest.fail(f"the loop was held above {BOUND_MS:.0f} ms: {told}", pytrace=False)


@pytest.fixture(autouse=True)
def leave_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test that leaves files, threads or processes; the Java machine of Spark may stay."""
    if request.node.get_closest_marker("spark"):
        yield
        return
    before = holdings()
    yield
    if found := left_behind(before):
        pytest.fail("left behind: " + "; ".join(found), pytrace=False)


@pytest.fixture
def proof_scale() -> Callable[[Any, Any], Any]:
    """Choose between a short and a full size: ``proof_scale(100, 100_000)``."""
    return scale.count
