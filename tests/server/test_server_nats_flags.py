import pytest

from millstream.server.config import ConfigError
from millstream.server.nats_flags import Launch, read_flags


def launch(*arguments: str, file: str = "") -> Launch:
    return read_flags(arguments, lambda path: file)


def test_flags_follow_gos_rules() -> None:
    values = launch("-p", "5000", "--addr=127.0.0.1", "-js", "-sd=/data", "--m", "0", "-DV").values
    assert values == {"port": "5000", "host": "127.0.0.1", "data_dir": "/data", "http_port": "0"}


def test_the_command_line_wins_over_the_file() -> None:
    file = 'port: 1\nserver_name: one\njetstream { store_dir: "/kept" }\nlisten: "127.0.0.1:2"\n'
    assert launch("-c", "f.conf", "-p", "3", file=file).values == {
        "port": "3",
        "host": "127.0.0.1",
        "server_name": "one",
        "data_dir": "/kept",
    }


def test_version_is_recognised() -> None:
    assert launch("--version").version


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--auth", "secret"], "-auth is not supported"),
        (["--tls"], "-tls is not supported"),
        (["-p"], "-p needs a value"),
        (["-js=false"], "-js cannot be switched off"),
        (["serve"], "unrecognized command: serve"),
    ],
)
def test_what_we_do_not_do_is_refused_by_name(arguments: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        launch(*arguments)


@pytest.mark.parametrize(
    ("file", "complaint"),
    [
        ("port: 1\nauthorization { token: s }\n", "f.conf:2: 'authorization' is not supported"),
        ("jetstream {\n domain: hub\n}\n", "f.conf:2: 'domain' is not supported"),
        ("port: {", "f.conf:1"),
    ],
)
def test_a_file_that_asks_for_more_is_refused_with_its_place(file: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        launch("-c", "f.conf", file=file)
