"""A proxy that keeps Host in front of a server on loopback: its names are allowed by a setting."""

import http.client
from pathlib import Path

from millstream.clock import SystemClock
from millstream.server.command_line.serve_options import load_serve
from millstream.server.opening import begin
from support.broker import millstream


def status(port: int, host: str, **headers: str) -> int:
    """Return what a request is answered that calls the server by this name."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        client.request("GET", "/v0/health", headers={"Host": host, **headers})
        return client.getresponse().status
    finally:
        client.close()


def test_a_host_that_was_allowed_is_served_and_others_are_not() -> None:
    names = ("--allowed-host", "mill.example", "--allowed-host", "Other.Example")
    with millstream(extra=names) as peer:
        for host in ("mill.example", "mill.example:443", "other.example", "127.0.0.1"):
            assert status(peer.http_port, host) == 200, host
        for host in ("evil.example", "mill.example.evil", "a.mill.example"):
            assert status(peer.http_port, host) == 403, host
        page = {"Origin": "https://mill.example"}
        assert status(peer.http_port, "mill.example", **page) == 200
        assert status(peer.http_port, "mill.example", Origin="https://evil.example") == 403


def test_a_file_allows_hosts_and_a_flag_wins_over_it(tmp_path: Path) -> None:
    file = tmp_path / "m.conf"
    file.write_text("allowed_hosts: [a.example]")
    assert load_serve({}, str(file)).options.monitor.allowed_hosts == ("a.example",)
    given = {"allowed_hosts": ("b.example",)}
    assert load_serve(given, str(file)).options.monitor.allowed_hosts == ("b.example",)


def test_an_allowed_host_is_answered_during_the_recovery_too(tmp_path: Path) -> None:
    with millstream(data_dir=tmp_path / "data"):
        pass
    given = {"port": 0, "http_port": 0, "data_dir": tmp_path / "data"}
    options = load_serve({**given, "allowed_hosts": ("mill.example",)}).options
    opening = begin(options, SystemClock())
    bound = opening._bound
    assert bound is not None
    port = bound[0].getsockname()[1]
    try:
        assert status(port, "mill.example") == 200
        assert status(port, "evil.example") == 403
    finally:
        opening.abandon()
