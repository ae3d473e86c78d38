import re
from pathlib import Path

import pytest

from millstream.server.command_line.flags import Flags
from millstream.server.command_line.options_file import load
from millstream.server.command_line.serve_options import load_serve
from millstream.server.options.auth_options import (
    AccountOptions,
    Authorization,
    TrustOptions,
    UserOptions,
)
from millstream.server.options.config_error import ConfigError
from millstream.server.options.options import Options, TlsOptions, WebsocketOptions
from millstream.server.options.options_check import contradictions


def test_the_defaults_are_those_of_nats_server() -> None:
    options = Options()
    assert (options.host, options.port) == ("0.0.0.0", 4222)
    assert options.monitor.port is None
    assert options.jetstream is None
    assert options.limits.max_pending == 64 * 1024 * 1024
    assert options.limits.max_payload == 1024 * 1024
    assert (options.lame_duck.duration, options.lame_duck.grace_period) == (120.0, 10.0)
    assert contradictions(options) == []


def test_secrets_do_not_show() -> None:
    shown = repr(
        Options(
            authorization=Authorization(user="a", password="hidden-1", token="hidden-2"),
            accounts=(AccountOptions("A", users=(UserOptions("b", "hidden-3"),)),),
        )
    )
    assert "hidden" not in shown


def test_credentials_are_asked_for_once_anybody_is_known() -> None:
    assert not Options().credentials
    assert Options(authorization=Authorization(token="t")).credentials
    assert Options(authorization=Authorization(users=())).credentials
    assert Options(accounts=(AccountOptions("A", users=(UserOptions("u"),)),)).credentials
    assert Options(trust=TrustOptions(trusted_keys=("O",))).credentials
    assert not Options(accounts=(AccountOptions("A"),)).credentials


def test_users_of_every_account_are_listed() -> None:
    options = Options(
        authorization=Authorization(users=(UserOptions("a"),)),
        accounts=(AccountOptions("A", users=(UserOptions("b"), UserOptions(nkey="U"))),),
    )
    assert [user.id for user in options.users] == ["a", "b", "U"]


def test_the_time_to_authenticate_grows_with_the_handshake() -> None:
    assert Options().auth_timeout == 2.0
    assert Options(tls=TlsOptions(timeout=5.0)).auth_timeout == 6.0
    assert Options(authorization=Authorization(timeout=0.5)).auth_timeout == 0.5


def test_monitoring_listens_beside_the_clients_unless_told_otherwise() -> None:
    assert Options(host="127.0.0.1").monitor_host == "127.0.0.1"


def test_a_single_user_excludes_a_list() -> None:
    options = Options(authorization=Authorization(user="a", users=(UserOptions("b"),)))
    assert [found.text for found in contradictions(options)] == [
        "a single user or token excludes a list of users: move it into the list"
    ]


def test_a_websocket_needs_tls_or_the_word_that_it_does_not() -> None:
    assert [found.text for found in contradictions(Options(websocket=WebsocketOptions(9222)))] == [
        "websocket needs a tls block, or no_tls: true"
    ]
    assert contradictions(Options(websocket=WebsocketOptions(9222, no_tls=True))) == []


def test_an_operator_needs_a_place_to_find_accounts() -> None:
    [problem] = contradictions(Options(trust=TrustOptions(operators=("jwt",))))
    assert problem.text.startswith("an operator needs a resolver")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("debug: true\nport: 99999\n", ":2: port must be up to 65535"),
        ("\nsystem_account: X\naccounts { A {} }\n", ":2: system_account 'X' is not among"),
        ("max_pending: 1MB\n\nMax_Payload: 2MB\n", ":1: max_payload (2097152) is above"),
        ("\n\nhttps: 8443\n", ":3: HTTPS monitoring needs a tls block: add one, or use http"),
        ("\nws { port: 80 }\n", ":2: websocket needs a tls block, or no_tls: true"),
        ("accounts { A { users: [{user: a, password: b}, {user: a, password: c}] } }\n", ":1: the"),
    ],
)
@pytest.mark.parametrize("serving", [False, True], ids=["as nats-server", "serve"])
def test_a_contradiction_names_the_line_that_says_it(
    text: str, complaint: str, serving: bool, tmp_path: Path
) -> None:
    file = tmp_path / "a.conf"
    file.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(f"{file}{complaint}")):
        load_serve({}, str(file)) if serving else load(Flags({"config": str(file)}), {})


def test_a_contradiction_of_flags_alone_names_no_line() -> None:
    with pytest.raises(ConfigError, match=r"^port must be up to 65535"):
        load(Flags({"port": 99999}), {})
