"""Section 1 of the contract: the environment, what is left at its default, and the end."""

import ipaddress
import logging
import socket
from pathlib import Path
from typing import Any

import pytest
from topics_api import Api

from millstream.http.limits import Limits
from millstream.server.command_line.serve_options import load_serve
from millstream.server.options.addresses import is_loopback
from millstream.server.options.config_error import ConfigError
from millstream.server.options.serve_config import ServeConfig, given
from millstream.server.process.launcher_files import LauncherFiles

NUMBERS = [
    *("PORT", "WAL_SHARDS", "SEGMENT_MAX_EVENTS", "SEGMENT_MAX_BYTES", "SEGMENT_MAX_AGE_MS"),
    *("HOT_RETAIN_SEGMENTS", "HOT_RETAIN_BYTES", "MAX_BODY_BYTES", "MAX_TOPICS", "MAX_ROUTERS"),
    *("MAX_WATCH_SESSIONS", "MAX_SSE_CONNECTIONS", "MAX_SSE_CONNECTIONS_PER_KEY"),
    *("MAX_INFLIGHT_PER_KEY", "MAX_TOTAL_BYTES", "TEST_MIN_HEARTBEAT_MS"),
]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("text", ["", "many", "1.5", "0x10"])
def test_s01_a_number_that_cannot_be_read_leaves_the_default(
    name: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert ServeConfig(**given({}, {f"TOPICS_{name}": text})) == ServeConfig()
    assert f"TOPICS_{name}" in caplog.text


@pytest.mark.parametrize("name", ["MAX_TOPICS", "MAX_TOTAL_BYTES", "WAL_SHARDS"])
def test_s01_a_negative_number_leaves_the_default(name: str) -> None:
    assert given({}, {f"TOPICS_{name}": "-1"}) == {}


@pytest.mark.parametrize("text", ["0", "garbage"])
def test_s01_no_shards_are_the_default_number_of_them(text: str) -> None:
    config = ServeConfig(**given({}, {"TOPICS_WAL_SHARDS": text}))
    assert config.wal_shards == ServeConfig().wal_shards == 1


@pytest.mark.parametrize("name", ["probe_auth", "allow_insecure_no_auth"])
@pytest.mark.parametrize(
    ("text", "is_on"), [("true", True), ("1", True), ("false", False), ("0", False), ("si", False)]
)
def test_s01_a_switch_is_on_by_true_or_1(name: str, text: str, is_on: bool) -> None:
    config = ServeConfig(**given({}, {f"TOPICS_{name.upper()}": text}))
    assert getattr(config, name) is is_on


def test_s01_a_segment_holds_one_record_at_least_and_an_age_of_0_is_none() -> None:
    environ = {"TOPICS_SEGMENT_MAX_EVENTS": "0", "TOPICS_SEGMENT_MAX_AGE_MS": "0"}
    stream = ServeConfig(**given({}, environ)).options().jetstream
    assert stream is not None
    assert (stream.segments.records, stream.segments.age) == (1, float("inf"))


@pytest.mark.parametrize(
    ("environ", "segments", "size"),
    [
        ({}, 4, None),
        ({"HOT_RETAIN_BYTES": "0"}, 4, None),
        ({"HOT_RETAIN_BYTES": "5"}, 4, 5),
        ({"HOT_RETAIN_SEGMENTS": "2"}, 2, None),
        ({"HOT_RETAIN_SEGMENTS": "0"}, 0, None),
    ],
)
def test_s01_a_cold_directory_alone_takes_what_is_behind_four_segments(
    environ: dict[str, str], segments: int, size: int | None
) -> None:
    told = {f"TOPICS_{name}": text for name, text in environ.items()}
    stream = ServeConfig(**given({}, {"TOPICS_COLD_DIR": "/c", **told})).options().jetstream
    assert stream is not None
    assert (stream.cold.place, stream.cold.hot_segments, stream.cold.hot_bytes) == (
        "/c", segments, size,
    )  # fmt: skip


def test_s01_without_a_cold_directory_nothing_moves() -> None:
    stream = ServeConfig(**given({}, {})).options().jetstream
    assert stream is not None
    assert (stream.cold.place, stream.cold.hot_segments) == ("", None)


@pytest.mark.parametrize(
    "name",
    [
        *("MAX_BATCH_RECORDS", "MAX_RECORD_BYTES", "MAX_META_BYTES", "MAX_TAG_BYTES"),
        *("MAX_NODE_BYTES", "MAX_LIMIT", "MAX_CLAIM", "MAX_WATCH_TOPICS"),
    ],
)
def test_s01_the_limits_of_one_request_are_fixed(name: str) -> None:
    assert given({}, {f"TOPICS_{name}": "1"}) == {}


@pytest.mark.parametrize("entry", ["s:reed", "s:+"])
def test_s01_keys_are_never_left_out_for_being_wrong(entry: str) -> None:
    with pytest.raises(ConfigError, match="TOPICS_API_KEYS"):
        given({}, {"TOPICS_API_KEYS": entry})


def test_s01_the_port_file_comes_by_a_rename(tmp_path: Path) -> None:
    path, before = tmp_path / "port", tmp_path / "before"
    path.write_text("old")
    before.hardlink_to(path)
    LauncherFiles().write({path: "127.0.0.1:8222"})
    assert (path.read_text(), before.read_text()) == ("127.0.0.1:8222", "old")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["before", "port"]


# -- which addresses are this machine's alone ------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("[::1]", True),
        ("localhost", True), ("0.0.0.0", False), ("::", False), ("[::]", False),
        ("192.0.2.1", False), ("no-such-host.invalid", False), ("", False), ("a b", False),
    ],
)  # fmt: skip
def test_s01_only_loopback_addresses_need_no_keys(host: str, is_own: bool) -> None:
    assert is_loopback(host) is is_own


@pytest.mark.parametrize(
    ("addresses", "is_own"),
    [
        (["127.0.0.1"], True), (["127.0.0.1", "::1"], True), (["fe80::1%eth0"], False),
        (["127.0.0.1", "192.0.2.1"], False), (["192.0.2.1"], False), ([], False),
    ],
)  # fmt: skip
def test_s01_a_name_is_this_machine_if_every_address_of_it_is(
    addresses: list[str], is_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolved(name: str, port: object) -> list[Any]:
        assert (name, port) == ("name", None)
        return [(0, 0, 0, "", (address, 0)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    assert is_loopback("name") is is_own
    if is_own:
        assert load_serve(given({}, {"TOPICS_HOST": "name"})).options.monitor_host == "name"
    else:
        with pytest.raises(ConfigError, match="refusing to listen on name"):
            load_serve(given({}, {"TOPICS_HOST": "name"}))


def test_s01_this_machines_own_name_is_looked_up() -> None:
    name = socket.gethostname()
    try:
        found = {str(each[4][0]) for each in socket.getaddrinfo(name, None)}
    except OSError:
        found = set()
    own = bool(found) and all(ipaddress.ip_address(each).is_loopback for each in found)
    assert is_loopback(name) is own


# -- the end ---------------------------------------------------------------------------------------


def test_s01_the_drain_gives_up_after_ten_seconds() -> None:
    assert Limits().drain_seconds == 10.0


async def test_s01_routers_are_drained_once_before_the_end(api: Api) -> None:
    for name in ("b", "c"):
        await api.call("PUT", f"/v0/routers/{name}", {"source": "a", "dest": name})
    await api.write("a", 1, 2, 3)
    assert [api.stream(name).state().messages for name in "bc"] == [0, 0]
    await api.topics.finish()
    assert [api.stream(name).state().messages for name in "bc"] == [3, 3]
