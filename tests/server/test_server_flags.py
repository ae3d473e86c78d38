from pathlib import Path

import pytest
from msgspec.structs import replace

from millstream.server.command_line.flag_options import with_flags
from millstream.server.command_line.flags import BadFlag, parse_flags
from millstream.server.options.auth_options import Authorization
from millstream.server.options.options import (
    JetStreamOptions,
    LoggingOptions,
    MonitorOptions,
    Options,
    TlsOptions,
)


def made(*arguments: str, over: Options | None = None) -> Options:
    return with_flags(over or Options(), parse_flags(arguments))


def test_flags_follow_gos_rules() -> None:
    assert parse_flags(
        ["-p", "5000", "--addr=127.0.0.1", "-js", "-sd=/data", "--m", "0", "-DV=false"]
    ).given == {
        "port": 5000,
        "host": "127.0.0.1",
        "jetstream": True,
        "store_dir": "/data",
        "http_port": 0,
        "debug_trace": False,
    }


def test_a_switch_does_not_eat_the_next_word() -> None:
    assert parse_flags(["-js", "-p", "1"]).given == {"jetstream": True, "port": 1}


def test_the_last_of_two_wins() -> None:
    assert parse_flags(["-p", "1", "--port", "2"]).given == {"port": 2}


def test_version_and_help_may_be_words() -> None:
    assert parse_flags(["-p", "1", "version"]).on("version")
    assert parse_flags(["--", "help"]).on("help")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-zz"], "flag provided but not defined: -zz"),
        (["---p", "1"], "bad flag syntax: ---p"),
        (["-=1"], "bad flag syntax: -=1"),
        (["-p"], "flag needs an argument: -p"),
        (["-p", "many"], 'invalid value "many" for flag -p'),
        (["-js=maybe"], 'invalid boolean value "maybe" for -js'),
        (["serve"], 'unrecognized command: "serve"'),
        (["-js", "true"], 'unrecognized command: "true"'),
    ],
)
def test_a_bad_command_line_is_told(arguments: list[str], complaint: str) -> None:
    with pytest.raises(BadFlag) as failure:
        parse_flags(arguments)
    assert complaint in str(failure.value)


def test_no_flags_change_nothing() -> None:
    assert made() == Options()


def test_addresses_are_taken() -> None:
    options = made("-a", "127.0.0.1", "-p", "-1", "-m", "8222")
    assert (options.host, options.port) == ("127.0.0.1", 0)
    assert options.monitor == MonitorOptions(port=8222)
    assert made("-m", "-1").monitor.port == 0
    assert made("-ms", "8443").monitor.tls_port == 8443


def test_what_is_typed_wins_over_what_is_written() -> None:
    written = Options(
        port=1,
        server_name="file",
        monitor=MonitorOptions(port=2),
        log=LoggingOptions(debug=True, file="file.log"),
        jetstream=JetStreamOptions(store_dir="file", domain="hub"),
    )
    assert made("-m", "0", "-D=false", "-l", "typed.log", "-sd", "typed", over=written) == replace(
        written,
        monitor=MonitorOptions(),
        log=LoggingOptions(file="typed.log"),
        jetstream=JetStreamOptions(store_dir="typed", domain="hub"),
    )


@pytest.mark.parametrize(
    ("flag", "log"),
    [
        ("-D", LoggingOptions(debug=True)),
        ("-V", LoggingOptions(trace=True)),
        ("-DV", LoggingOptions(debug=True, trace=True)),
        ("-VV", LoggingOptions(trace=True, trace_verbose=True)),
        ("-DVV", LoggingOptions(debug=True, trace=True, trace_verbose=True)),
        ("-T=false", LoggingOptions(time=False)),
        ("--logtime_utc", LoggingOptions(utc=True)),
        ("--log_size_limit=9", LoggingOptions(size_limit=9)),
    ],
)
def test_log_flags_switch_what_they_say(flag: str, log: LoggingOptions) -> None:
    assert made(flag).log == log


def test_names_and_files_are_taken() -> None:
    options = made("-n", "one", "-P", "p", "--ports_file_dir", "d", "--client_advertise", "a:1")
    assert (options.server_name, options.advertise) == ("one", "a:1")
    assert (options.pid_file, options.ports_file_dir) == ("p", "d")
    assert made("--cluster_name", "c").cluster_name == "c"


def test_credentials_are_taken() -> None:
    assert made("--user", "a", "--pass", "b").authorization == Authorization(user="a", password="b")
    assert made("--auth", "t").authorization == Authorization(token="t")


def test_jetstream_can_be_switched_on_and_off() -> None:
    assert made("-js").jetstream == JetStreamOptions()
    assert made("-js", "-sd", "d").jetstream == JetStreamOptions(store_dir="d")
    assert made("-sd", "d").jetstream is None
    assert made("-js=false", over=Options(jetstream=JetStreamOptions())).jetstream is None


def test_tls_can_be_switched_off() -> None:
    assert made("-tls=false", over=Options(tls=TlsOptions())).tls is None


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--tls"], "TLS needs a server certificate: give it with --tlscert"),
        (["--tlscert", "c"], "TLS needs a server private key: give it with --tlskey"),
        (["--tlscert", "/no", "--tlskey", "/no"], "/no: No such file or directory"),
        (["--user", "a", "--auth", "b"], "--auth and --user exclude each other"),
        (["-r", "h:514"], "it must begin with udp://"),
        (["-r", "udp://h"], "must name a host and a port"),
        (["--routes", "nats://"], "--routes needs a URL"),
        (["--cluster_listen", "h"], "--cluster needs a URL"),
        (["-n", "one two"], "cannot contain spaces"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(arguments: list[str], complaint: str) -> None:
    with pytest.raises(BadFlag) as failure:
        made(*arguments)
    assert complaint in str(failure.value)


def test_an_empty_cluster_flag_asks_for_none(tmp_path: Path) -> None:
    assert made("--cluster=", "--no_advertise", "--connect_retries", "3") == Options()
