from pathlib import Path

import pytest

from millstream.accounts.api_keys import make_key, parse_keys
from millstream.dashboard.masking import MaskRule
from millstream.server.access.key_file import KeyFile
from millstream.server.command_line.serve_options import load_serve
from millstream.server.options.config_error import ConfigError
from millstream.server.options.options import (
    ColdHistoryOptions,
    JetStreamOptions,
    MonitorOptions,
    SegmentOptions,
)
from millstream.server.options.serve_config import CAPS, Given, ServeConfig, given
from support.certificates import Authority


def read(flags: dict[str, Given], environ: dict[str, str]) -> ServeConfig:
    return ServeConfig(**given(flags, environ))


def test_without_anything_the_defaults_hold() -> None:
    assert read({}, {}) == ServeConfig()
    assert (ServeConfig().port, ServeConfig().http_port) == (4222, 8222)
    assert ServeConfig().data_dir == Path("millstream-data")


def test_a_flag_beats_the_environment_which_beats_the_default() -> None:
    environ = {"MILLSTREAM_PORT": "5000", "MILLSTREAM_HTTP_PORT": "5001"}
    config = read({"port": 6000, "http_port": None}, environ)
    assert (config.port, config.http_port, config.host) == (6000, 5001, "127.0.0.1")


def test_every_option_can_come_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "mask.json").write_text('[{"stream": "A", "paths": ["$.b"]}]')
    told = {
        "host": "::1",
        "port": "1",
        "http_host": "localhost",
        "http_port": "2",
        "data_dir": "/data",
        "server_name": "one",
        "max_payload": "10",
        "ports_file_dir": "/ports",
        "pid_file": "/pid",
        "http_port_file": "/http",
        "segment_max_events": "11",
        "segment_max_bytes": "12",
        "segment_max_age_ms": "13",
        "allow_insecure_no_auth": "true",
        "api_keys": "s3cret:read",
        "probe_auth": "1",
        "wal_shards": "3",
        "cold": "/cold",
        "hot_segments": "4",
        "hot_bytes": "5",
        "allowed_hosts": "mill.example, [FD00::1]",
        "http_durability": "fsync",
        "mask_file": str(tmp_path / "mask.json"),
        "log_format": "json",
        "fleet": "s3://bucket/fleet",
    }
    assert told.keys() == {*ServeConfig.__struct_fields__} - set(CAPS)
    assert read({}, {f"MILLSTREAM_{k.upper()}": v for k, v in told.items()}) == ServeConfig(
        "::1",
        1,
        "localhost",
        2,
        Path("/data"),
        "one",
        10,
        Path("/ports"),
        Path("/pid"),
        Path("/http"),
        11,
        12,
        13,
        True,
        parse_keys("s3cret:read"),
        True,
        3,
        cold="/cold",
        hot_segments=4,
        hot_bytes=5,
        http_durability="fsync",
        allowed_hosts=("mill.example", "fd00::1"),
        mask_file=(MaskRule("A", paths=("$.b",)),),
        log_format="json",
        fleet="s3://bucket/fleet",
    )


def test_no_allowed_hosts_may_be_said() -> None:
    assert read({}, {"MILLSTREAM_ALLOWED_HOSTS": ""}) == ServeConfig()


def test_serving_has_safer_defaults_than_nats_server() -> None:
    options = ServeConfig().options()
    assert (options.host, options.monitor_host) == ("127.0.0.1", "127.0.0.1")
    assert options.monitor == MonitorOptions("127.0.0.1", 8222, topics=True)
    assert options.limits.max_pending == 8 * 1024 * 1024
    assert options.jetstream == JetStreamOptions(store_dir="millstream-data")
    assert options.program == "millstream"


def test_every_setting_of_serve_reaches_the_options() -> None:
    config = ServeConfig(
        port=1,
        http_port=2,
        server_name="one",
        max_payload=10,
        ports_file_dir=Path("/ports"),
        pid_file=Path("/pid"),
        segment_max_events=11,
        segment_max_bytes=12,
        segment_max_age_ms=13_000,
        wal_shards=4,
        allowed_hosts=("mill.example",),
    )
    options = config.options()
    assert (options.port, options.monitor.port, options.server_name) == (1, 2, "one")
    assert options.limits.max_payload == 10
    assert (options.ports_file_dir, options.pid_file) == ("/ports", "/pid")
    assert options.jetstream is not None
    assert options.jetstream.segments == SegmentOptions(11, 12, 13.0)
    assert options.jetstream.wal_shards == 4
    assert options.monitor.allowed_hosts == ("mill.example",)


@pytest.mark.parametrize("port", [0, -1])
def test_zero_and_minus_one_both_mean_a_free_port(port: int) -> None:
    assert read({"port": port}, {}).port == 0


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"port": 65536}, "--port must be a port"),
        ({"http_port": "x"}, "--http-port must be a whole number"),
        ({"max_payload": 0}, "--max-payload must be 1 to"),
        ({"server_name": "two words"}, "--server-name must be one word"),
        ({"data_dir": ""}, "--data-dir must name a path"),
        ({"allowed_hosts": ("https://a",)}, "--allowed-host must name a host"),
        ({"allowed_hosts": ("a", "a:80")}, "--allowed-host must name a host"),
        ({"allowed_hosts": ("*.a",)}, "--allowed-host must name a host"),
        ({"allow_insecure_no_auth": "maybe"}, "--allow-insecure-no-auth must be true or false"),
    ],
)
def test_a_value_that_cannot_work_is_named(flags: dict[str, Given], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        read(flags, {})


def test_a_mistake_in_the_environment_names_the_variable() -> None:
    with pytest.raises(ConfigError, match="MILLSTREAM_PORT must be a whole number, not 'x'"):
        read({}, {"MILLSTREAM_PORT": "x"})


@pytest.mark.parametrize("field", ["host", "http_host"])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org"])
def test_an_open_listener_without_credentials_is_refused(field: str, host: str) -> None:
    with pytest.raises(ConfigError, match=f"refusing to listen on {host} without credentials"):
        load_serve({field: host})
    assert load_serve({field: host, "allow_insecure_no_auth": True})


def test_credentials_open_both_ports(tmp_path: Path) -> None:
    file = tmp_path / "m.conf"
    file.write_text("authorization { token: t }")
    hosts = {"host": "0.0.0.0", "http_host": "0.0.0.0"}
    assert load_serve(hosts, str(file)).options.credentials


def test_keys_open_the_http_port_but_not_the_nats_one() -> None:
    keys = {"api_keys": parse_keys("s3cret")}
    assert load_serve({"http_host": "0.0.0.0", **keys}).options.monitor.keys == keys["api_keys"]
    with pytest.raises(ConfigError, match=r"refusing to listen on 0\.0\.0\.0"):
        load_serve({"host": "0.0.0.0", **keys})


def test_keys_that_would_travel_in_plain_text_are_warned_about() -> None:
    keys = {"api_keys": parse_keys("s3cret")}
    (warning,) = load_serve({"http_host": "0.0.0.0", **keys}).warnings
    assert warning.startswith("keys and passwords go to 0.0.0.0 in plain text")
    assert load_serve(keys).warnings == ()


def test_keys_in_the_data_directory_open_the_http_port(tmp_path: Path) -> None:
    where = {"http_host": "0.0.0.0", "data_dir": tmp_path}
    with pytest.raises(ConfigError, match=r"refusing to listen on 0\.0\.0\.0"):
        load_serve(where)
    with KeyFile(tmp_path).changed() as keys:
        keys.append(make_key("one")[0])
    assert load_serve(where)


def test_the_contracts_names_of_the_environment_are_taken_but_ours_win() -> None:
    told = {"TOPICS_API_KEYS": "a", "TOPICS_PROBE_AUTH": "true"}
    assert read({}, told).api_keys == parse_keys("a")
    assert read({}, told).probe_auth
    assert read({}, {**told, "MILLSTREAM_API_KEYS": "b"}).api_keys == parse_keys("b")


def test_a_mistake_in_the_keys_is_told_without_the_secret() -> None:
    with pytest.raises(ConfigError, match="MILLSTREAM_API_KEYS: entry 2: a scope must be") as told:
        read({}, {"MILLSTREAM_API_KEYS": "good,hunter2:hunter3"})
    assert "hunter" not in str(told.value)


def test_a_file_stands_between_the_defaults_and_what_is_typed(tmp_path: Path) -> None:
    file = tmp_path / "m.conf"
    file.write_text("port: 5000\nserver_name: file\nping_max: 9\njetstream { domain: hub }")
    options = load_serve({"port": 6000, "max_payload": 10}, str(file)).options
    assert (options.port, options.server_name, options.host) == (6000, "file", "127.0.0.1")
    assert (options.limits.ping_max, options.limits.max_payload) == (9, 10)
    assert options.limits.max_pending == 8 * 1024 * 1024
    assert options.jetstream == JetStreamOptions(store_dir="millstream-data", domain="hub")
    assert options.monitor == MonitorOptions("127.0.0.1", 8222, topics=True)


def test_large_payloads_get_room_to_be_sent() -> None:
    limits = load_serve({"max_payload": 32 * 1024 * 1024}).options.limits
    assert limits.max_pending == limits.max_payload == 32 * 1024 * 1024


def test_a_mistake_in_the_file_is_told_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "m.conf"
    file.write_text("\nprot: 1")
    with pytest.raises(ConfigError, match=r"m.conf:2: 'prot' is not a known setting"):
        load_serve({}, str(file))


def test_https_takes_the_place_of_http(tmp_path: Path) -> None:
    authority = Authority(tmp_path).server()
    file = tmp_path / "m.conf"
    tls = f"tls {{ cert_file: '{authority.cert_file}', key_file: '{authority.key_file}' }}"
    file.write_text(f"https: '127.0.0.1:8443'\n{tls}\n")
    monitor = load_serve({}, str(file)).options.monitor
    assert (monitor.port, monitor.tls_port) == (None, 8443)


def test_a_cold_place_is_told_by_flags_or_by_a_file(tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text("jetstream { cold { place: '/far', hot_bytes: 1MB, parquet: none } }")
    loaded = load_serve({"hot_segments": 2}, str(file)).options.jetstream
    assert loaded is not None
    assert loaded.cold == ColdHistoryOptions("/far", 2, 1024 * 1024, parquet="none")
