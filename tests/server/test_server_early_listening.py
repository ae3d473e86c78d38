"""A start listens before it imports the rest: who connects meanwhile waits, and is served."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.cli import nats_server_run
from millstream.server.command_line.flags import parse_flags
from millstream.server.command_line.options_file import load
from millstream.server.options.config_error import ConfigError
from support.peers import free_port


def test_a_client_may_connect_before_the_server_is_imported(tmp_path: Path) -> None:
    port = free_port()
    flags = parse_flags(["-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(tmp_path)])
    options = load(flags, {}).options
    early = nats_server_run._opened_early(options)
    try:
        assert [each.getsockname() for each in early] == [("127.0.0.1", port)]
        socket.create_connection(("127.0.0.1", port), 5).close()
        with pytest.raises(ConfigError, match=r"is taken: .* with -p"):
            nats_server_run._opened_early(options)
    finally:
        for each in early:
            each.close()


def test_a_directory_with_records_is_recovered_before_the_port_opens(tmp_path: Path) -> None:
    (tmp_path / "wal").mkdir()
    flags = parse_flags(["-a", "127.0.0.1", "-p", str(free_port()), "-js", "-sd", str(tmp_path)])
    assert nats_server_run._opened_early(load(flags, {}).options) == []


def test_a_taken_port_is_told_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        asked = [sys.executable, "-m", "millstream", "nats-server", "-a", "127.0.0.1", "-p", port]
        said = subprocess.run(
            [*asked, "-js", "-sd", str(tmp_path)], capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
    assert said.returncode == 1
    assert f"127.0.0.1:{port} is taken" in said.stderr.splitlines()[-1]
