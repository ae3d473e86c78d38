import logging
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millstream.server.options.options import LoggingOptions
from millstream.server.process.log_output import TRACE, LogOutput, level

Open = Callable[[LoggingOptions], tuple[logging.Logger, LogOutput]]


@pytest.fixture
def opened() -> Iterator[Open]:
    outputs: list[tuple[logging.Logger, LogOutput]] = []

    def open_output(options: LoggingOptions) -> tuple[logging.Logger, LogOutput]:
        logger = logging.Logger("test", TRACE)
        outputs.append((logger, LogOutput(options)))
        logger.addHandler(outputs[-1][1])
        return outputs[-1]

    yield open_output
    for logger, output in outputs:
        logger.removeHandler(output)
        output.close()


def test_lines_look_like_those_of_nats_server(
    opened: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    logger, _ = opened(LoggingOptions())
    logger.info("Server is ready")
    line = capsys.readouterr().err
    pattern = (
        rf"\[{os.getpid()}\] \d{{4}}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{{6}} \[INF\] Server is ready\n"
    )
    assert re.fullmatch(pattern, line)


def test_whoever_asks_for_traces_alone_gets_no_debug_lines(
    opened: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    logger, _ = opened(LoggingOptions(time=False, trace=True))
    logger.log(TRACE, "traced")
    logger.debug("debugged")
    assert "traced" in (said := capsys.readouterr().err)
    assert "debugged" not in said


def test_each_level_has_its_label(opened: Open, capsys: pytest.CaptureFixture[str]) -> None:
    logger, _ = opened(LoggingOptions(time=False, debug=True))
    for number in (TRACE, logging.DEBUG, logging.WARNING, logging.ERROR, logging.CRITICAL):
        logger.log(number, "x %d", 1)
    labels = re.findall(r"\[(\w{3})\] x 1", capsys.readouterr().err)
    assert labels == ["TRC", "DBG", "WRN", "ERR", "FTL"]


def test_a_moved_file_is_opened_anew_on_demand(opened: Open, tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    logger, output = opened(LoggingOptions(file=str(file)))
    logger.info("one")
    file.rename(tmp_path / "moved.log")
    logger.info("two")
    output.reopen()
    logger.info("three")
    assert [line[-3:] for line in (tmp_path / "moved.log").read_text().split("\n")[:2]] == [
        "one",
        "two",
    ]
    assert file.read_text().endswith("three\n")


def test_a_file_is_put_aside_at_its_size_and_few_are_kept(opened: Open, tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    logger, _ = opened(LoggingOptions(time=False, file=str(file), size_limit=200, max_files=3))
    for _ in range(100):
        logger.info("0123456789" * 4)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 3
    assert names[0] == "a.log"
    assert all(path.stat().st_size < 400 for path in tmp_path.iterdir())


def test_the_output_can_change_while_it_runs(opened: Open, tmp_path: Path) -> None:
    logger, output = opened(LoggingOptions(file=str(tmp_path / "a.log")))
    output.change(LoggingOptions(file=str(tmp_path / "b.log"), time=False))
    logger.info("here")
    assert (tmp_path / "b.log").read_text() == f"[{os.getpid()}] [INF] here\n"


def test_a_file_that_cannot_be_opened_leaves_the_old_one(opened: Open, tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    logger, output = opened(LoggingOptions(file=str(file)))
    with pytest.raises(OSError, match="No such file"):
        output.change(LoggingOptions(file=str(tmp_path / "no" / "b.log")))
    logger.info("still here")
    assert file.read_text().endswith("still here\n")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (LoggingOptions(), logging.INFO),
        (LoggingOptions(debug=True), logging.DEBUG),
        (LoggingOptions(trace=True), TRACE),
    ],
)
def test_debug_and_trace_say_more(options: LoggingOptions, expected: int) -> None:
    assert level(options) == expected


@pytest.mark.parametrize("scheme", ["udp", "tcp", "unix"])
def test_lines_go_to_a_log_elsewhere(opened: Open, scheme: str, tmp_path: Path) -> None:
    family = socket.AF_UNIX if scheme == "unix" else socket.AF_INET
    kind = socket.SOCK_DGRAM if scheme == "udp" else socket.SOCK_STREAM
    with socket.socket(family, kind) as there:
        there.settimeout(5)
        there.bind(str(tmp_path / "log") if scheme == "unix" else ("127.0.0.1", 0))
        if scheme == "unix":
            url = f"unix://{tmp_path}/log"
        else:
            url = f"{scheme}://127.0.0.1:{there.getsockname()[1]}"
        if scheme != "udp":
            there.listen()
        logger, output = opened(LoggingOptions(remote_syslog=url))
        heard = there if scheme == "udp" else there.accept()[0]
        heard.settimeout(5)
        logger.warning("take care")
        line = heard.recv(4096).decode()
        output.close()
        heard.close()
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d"
    pattern = rf"<4>{time} \S+ nats-server\[{os.getpid()}\]: take care\n"
    assert re.fullmatch(pattern, line)


def test_a_log_that_is_gone_never_holds_the_server(opened: Open, tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as there:
        there.bind(("127.0.0.1", 0))
        there.listen()
        url = f"tcp://127.0.0.1:{there.getsockname()[1]}"
        logger, output = opened(LoggingOptions(remote_syslog=url))
        there.accept()[0].close()
    for _ in range(1000):
        logger.info("x" * 1000)
    assert output.lost_lines > 0


def test_a_file_goes_before_syslog_and_a_reload_moves_between_them(
    opened: Open, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        there.bind(("127.0.0.1", 0))
        there.settimeout(5)
        url = f"udp://127.0.0.1:{there.getsockname()[1]}"
        file = tmp_path / "log"
        logger, output = opened(LoggingOptions(file=str(file), remote_syslog=url))
        logger.info("to the file")
        output.change(LoggingOptions(remote_syslog=url))
        logger.info("to the other")
        assert there.recv(4096).decode().endswith(": to the other\n")
        assert "to the file" in file.read_text()


def test_a_syslog_that_nobody_listens_at_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        LogOutput(LoggingOptions(remote_syslog=f"unix://{tmp_path}/nobody"))
