"""Small things that operators and client authors see: the same on both servers."""

import contextlib
import json
import os
import re
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from configured_pair import Place, both

from support.certificates import Authority
from support.clients import flushed
from support.server_process import OURS, THEIRS, Wire, started

QUIET = '"verbose":false,"pedantic":false,"user":"joe","pass":"secret"'
USERS = "authorization { users: [{user: joe, password: secret, permissions: {publish: a}}] }\n"
TALKS = {
    "an unknown operation": f"CONNECT {{{QUIET}}}\r\nFOO",
    "a payload that is too large": f"CONNECT {{{QUIET}}}\r\nPUB a 9999999",
    "a line that is too long": f"CONNECT {{{QUIET}}}\r\nSUB {'a' * 5000} 1",
    "a protocol of the future": 'CONNECT {"protocol":5}',
    "no responders without headers": 'CONNECT {"no_responders":true}',
    "an account of its own": 'CONNECT {"account":"x"}',
    "a stranger of the future": 'CONNECT {"protocol":5,"user":"eve","pass":"x"}',
    "keys in capitals": (
        'CONNECT {"VERBOSE":false,"Pedantic":false,"User":"joe","PASS":"secret"}\r\nPING'
    ),
}


def said(place: Place, talk: str) -> list[str]:
    """Return what a bare client hears, up to the end or to a PONG."""
    host, _, port = place.url.removeprefix("nats://").rpartition(":")
    heard = b""
    with socket.create_connection((host, int(port)), 5) as client:
        client.sendall(talk.encode() + b"\r\n")
        while b"PONG" not in heard and (more := client.recv(65536)):
            heard += more
    return [line for line in heard.decode().split("\r\n") if not line.startswith("INFO")]


def closed(place: Place, name: str) -> dict[str, Any]:
    """Return the connection of this name, once it has ended."""
    while True:
        for each in place.page("connz?state=closed&auth=1")["connections"]:
            if each.get("name") == name:
                return dict(each)


@pytest.mark.parametrize("config", ["", USERS], ids=["open", "with users"])
async def test_a_connection_ends_with_the_same_words_for_the_same_reason(
    config: str, tmp_path: Path
) -> None:
    async def endings(place: Place) -> list[Any]:
        found: list[Any] = []
        for name, talk in TALKS.items():
            words = said(place, talk.replace("CONNECT {", f'CONNECT {{"name":"{name}",'))
            ended = closed(place, name)
            shown = [ended.get(key) for key in ("reason", "authorized_user", "account")]
            found.append((name, words, shown, "rtt" in ended))
        return found

    seen = {name: (words, shown) for name, words, shown, _ in await both(tmp_path, config, endings)}
    if not config:
        reasons = [shown[0] for _, shown in seen.values()]
        assert reasons[1:5] == [
            "Maximum Message Payload Exceeded",
            "Maximum Control Line Exceeded",
            "Bad Client Protocol Version",
            "No Responders Requires Headers",
        ]
        assert seen["keys in capitals"] == (["PONG", ""], ["Client Closed", "joe", None])


SHARED = """
server_name: one
server_tags: [a]
client_advertise: "example.com:4333"
system_account: SYS
accounts {
  SYS { users: [{user: sys, password: secret}] }
  B { users: [{user: b, password: secret}] }
}
websocket { port: -1, no_tls: true, compression: true, same_origin: true,
  allowed_origins: ["http://x.com"], handshake_timeout: "3s" }
jetstream { store_dir: "DIRECTORY" }
"""


async def test_monitoring_tells_what_the_file_says(tmp_path: Path) -> None:
    async def told(place: Place) -> list[Any]:
        client = await place.client("b")
        await client.subscribe("x")
        await flushed(client)
        varz = place.page("varz")
        varz["websocket"].pop("port")
        varz["websocket"].pop("host")
        (connection,) = place.page("connz?auth=1&subs=detail&acc=B")["connections"]
        listed = place.page("subsz?subs=1&acc=B&test=x")["subscriptions_list"]
        return [
            *(varz["host"], varz["port"], varz["websocket"]),
            *(connection["name_tag"], "rtt" in connection),
            *({key: sub[key] for key in ("account", "account_tag")} for sub in listed),
            place.page("connz?mqtt_client=x")["num_connections"],
            place.page("routez?subs=detail")["num_routes"],
            [client.connected_server_version.major, client._server_info["host"]],
            [client._server_info["port"], client._server_info.get("connect_urls")],
        ]

    seen = await both(tmp_path, SHARED, told)
    assert seen[:2] == ["example.com", 4333]


async def test_the_system_account_hears_the_same(tmp_path: Path) -> None:
    async def heard(place: Place) -> list[Any]:
        system = await place.client("sys")
        events = await system.subscribe("$SYS.SERVER.ACCOUNT.B.CONNS")
        await flushed(system)
        client = await place.client("b")
        came = json.loads((await events.next_msg(5)).data)
        await client.close()
        left = json.loads((await events.next_msg(5)).data)
        healthy = await system.request("$SYS.REQ.SERVER.PING.HEALTHZ", b"", timeout=10)
        missing = await system.request(
            "$SYS.REQ.SERVER.PING.HEALTHZ", b'{"account": "B", "stream": "x"}', timeout=10
        )
        reload = f"$SYS.REQ.SERVER.{came['server']['id']}.RELOAD"
        reloaded = await system.request(reload, b"", timeout=10)
        return [
            (came["acc"], came["conns"], left["conns"]),
            json.loads(healthy.data)["data"]["status_code"],
            json.loads(missing.data)["data"]["status_code"],
            sorted(json.loads(reloaded.data)),
        ]

    assert (await both(tmp_path, SHARED, heard))[0] == ("B", 1, 0)


@pytest.mark.parametrize("program", [OURS, THEIRS], ids=["ours", "theirs"])
def test_a_server_that_stops_says_who_it_was(program: Any, tmp_path: Path) -> None:
    conf = tmp_path / "server.conf"
    conf.write_text(SHARED.replace("DIRECTORY", str(tmp_path / "data")))
    with started("-c", str(conf), program=program) as server, Wire(server.ready()) as client:
        client.say('CONNECT {"user":"sys","pass":"secret"}\r\nSUB $SYS.SERVER.> 1')
        client.answers()
        server.tell(signal.SIGTERM)
        told = [json.loads(line) for line in client.rest() if line.startswith("{")]
    last = [each for each in told if "type" not in each]
    assert [each["name"] for each in last] == ["one"]


@pytest.mark.parametrize("program", [OURS, THEIRS], ids=["ours", "theirs"])
def test_who_was_refused_what_is_in_the_log(program: Any, tmp_path: Path) -> None:
    conf = tmp_path / "server.conf"
    conf.write_text(USERS.replace("publish: a", 'publish: a, subscribe: "b"'))
    with started("-c", str(conf), program=program) as server:
        url = server.ready()
        with Wire(url) as client:
            client.say(f"CONNECT {{{QUIET}}}\r\nPUB no 0\r\n")
            client.say("SUB no q 7")
            client.answers()
        with Wire(url) as client:
            client.say('CONNECT {"user":"joe","pass":"wr0ng"}')
            assert list(client.rest()) == ["-ERR 'Authorization Violation'"]
        with Wire(url) as client:
            client.say('CONNECT {"auth_token":"t0ps3cret"}')
            assert list(client.rest()) == ["-ERR 'Authorization Violation'"]
        server.finish()
    errors = [re.sub(r".*\[ERR\] \S+ - cid:\d+ - ", "", x) for x in server.lines if "[ERR]" in x]
    assert errors == [
        '"$G/user:joe" - Publish Violation - Subject "no"',
        '"$G/user:joe" - Subscription Violation - Subject "no", Queue: "q", SID 7',
        'authentication error - User "joe"',
        'authentication error - Token "[REDACTED]"',
    ]


@pytest.mark.parametrize("program", [OURS, THEIRS], ids=["ours", "theirs"])
def test_a_reload_is_seen_in_monitoring(program: Any, tmp_path: Path) -> None:
    conf = tmp_path / "server.conf"
    conf.write_text("max_payload: 1000\nhttp: 127.0.0.1:-1\n")
    with started("-c", str(conf), program=program) as server:
        http = server.until(r"Starting http monitor on \S+:(\d+)")[1]
        place = Place(0, int(http))
        url = server.ready()
        before = place.page("varz")
        conf.write_text(
            "max_payload: 2000\nhttp: 127.0.0.1:-1\nping_interval: '9s'\nserver_tags: [new]\n"
            "server_metadata { rack: '7' }\n"
            "client_advertise: 'example.com:4333'\nauthorization { user: a, password: b }\n"
        )
        os.utime(conf)
        server.tell(signal.SIGHUP)
        server.until("Reloaded server configuration")
        kept = place.page("jsz")
        assert [kept[name] for name in ("disabled", "streams", "bytes")] == [True, 0, 0]
        after = place.page("varz")
        with Wire(url) as client:
            assert (client.info["host"], client.info["port"]) == ("example.com", 4333)
    assert (before["max_payload"], after["max_payload"]) == (1000, 2000)
    assert (after["ping_interval"], after["tags"]) == (9_000_000_000, ["new"])
    assert (after["auth_required"], after["metadata"]) == (True, {"rack": "7"})
    assert after["config_load_time"] > before["config_load_time"] == before["start"]


@pytest.mark.parametrize("program", [OURS, THEIRS], ids=["ours", "theirs"])
@pytest.mark.parametrize(("optional", "told"), [(False, None), (True, True)])
def test_tls_is_available_where_it_is_not_required(
    program: Any, optional: bool, told: bool | None, tmp_path: Path
) -> None:
    certificate = Authority(tmp_path).server()
    conf = tmp_path / "server.conf"
    conf.write_text(
        f'tls {{ cert_file: "{certificate.cert_file}", key_file: "{certificate.key_file}" }}\n'
        f"allow_non_tls: {str(optional).lower()}\nhttp: 127.0.0.1:-1\n"
    )
    ends = certificate.certificate.not_valid_after_utc
    with started("-c", str(conf), program=program) as server:
        http = server.until(r"Starting http monitor on \S+:(\d+)")[1]
        with Wire(server.ready()) as client:
            shown = Place(0, int(http)).page("varz")["tls_cert_not_after"]
        assert shown == f"{ends:%Y-%m-%dT%H:%M:%SZ}"
        assert client.info.get("tls_available") is told
        assert client.info.get("tls_required") is (None if optional else True)


SERVICE = """
accounts {
  A { users: [{user: a, password: secret}]
    exports: [{service: plain}, {service: open}] }
  B { users: [{user: b, password: secret}]
    imports: [{service: {account: A, subject: plain}}
      {service: {account: A, subject: open}, share: true}] }
}
"""


async def test_a_service_learns_the_same_of_who_asks(tmp_path: Path) -> None:
    async def told(place: Place) -> list[Any]:
        service, client = await place.client("a"), await place.client("b")
        requests = await service.subscribe("*")
        await flushed(service)
        found = []
        for subject in ("plain", "open"):
            await client.publish(subject, b"", reply="answers")
            headers = (await requests.next_msg(5)).headers or {}
            found.append(sorted(json.loads(headers["Nats-Request-Info"])))
        return found

    assert (await both(tmp_path, SERVICE, told))[0] == ["acc", "rtt"]


@pytest.mark.parametrize("program", [OURS, THEIRS], ids=["ours", "theirs"])
@pytest.mark.parametrize(("limit", "shown", "welcome"), [(2, 2, 2), (0, -1, 0), (-1, -1, 0)])
def test_so_many_clients_are_let_in(
    program: Any, limit: int, shown: int, welcome: int, tmp_path: Path
) -> None:
    conf = tmp_path / "server.conf"
    conf.write_text(f"max_connections: {limit}\nhttp: 127.0.0.1:-1\n")
    with started("-c", str(conf), program=program) as server, contextlib.ExitStack() as stack:
        http = server.until(r"Starting http monitor on \S+:(\d+)")[1]
        url = server.ready()
        clients = [stack.enter_context(Wire(url)) for _ in range(welcome)]
        assert [client.answers() for client in clients] == [[]] * welcome
        with Wire(url) as late:  # it is greeted before it is told
            assert list(late.rest()) == ["-ERR 'maximum connections exceeded'"]
        assert Place(0, int(http)).page("varz")["max_connections"] == shown


RELOADS = {
    "users where there were none": ("debug: false\n", USERS),
    "fewer connections": ("debug: false\n", "max_connections: 1\n"),
}


@pytest.mark.parametrize("program", [OURS, THEIRS], ids=["ours", "theirs"])
@pytest.mark.parametrize("name", RELOADS)
def test_a_reload_keeps_whom_it_can_keep(program: Any, name: str, tmp_path: Path) -> None:
    before, after = RELOADS[name]
    conf = tmp_path / "server.conf"
    conf.write_text(before)
    with started("-c", str(conf), program=program) as server, contextlib.ExitStack() as stack:
        url = server.ready()
        clients = [stack.enter_context(Wire(url)) for _ in range(2)]
        for client in clients:
            client.say(f"CONNECT {{{QUIET}}}")
            assert client.answers() == []
        conf.write_text(after)
        server.tell(signal.SIGHUP)
        server.until("Reloaded server configuration")
        heard = sorted(map(heard_by, clients))
    surplus = ["-ERR 'maximum connections exceeded'"] if name == "fewer connections" else []
    assert heard == [[], surplus]


def heard_by(client: Wire) -> list[str]:
    """Return what a client reads that may have been hung up on."""
    heard: list[str] = []
    with contextlib.suppress(OSError):
        client.say("PING")
        for line in client.rest(until=b"PONG\r\n"):
            heard.append(line)  # noqa: PERF402 - what came before a reset counts
    return heard


@pytest.mark.parametrize("program", [OURS, THEIRS], ids=["ours", "theirs"])
def test_a_token_counts_whatever_else_a_client_says(program: Any) -> None:
    with started("--auth", "t0ps3cret", program=program) as server:
        url = server.ready()
        with Wire(url) as client:
            client.say('CONNECT {"verbose":false,"user":"joe","pass":"x","auth_token":"t0ps3cret"}')
            assert client.answers() == []
        with Wire(url) as client:
            client.say('CONNECT {"verbose":false,"user":"joe","pass":"t0ps3cret"}')
            assert list(client.rest()) == ["-ERR 'Authorization Violation'"]


@pytest.mark.parametrize("program", [OURS, THEIRS], ids=["ours", "theirs"])
def test_credentials_that_are_too_long_are_told_so(program: Any, tmp_path: Path) -> None:
    conf = tmp_path / "server.conf"
    conf.write_text(USERS)
    with started("-c", str(conf), program=program) as server, Wire(server.ready()) as client:
        client.say(f'CONNECT {{"jwt":"{"x" * 5000}"')
        assert list(client.rest()) == ["-ERR 'maximum control line exceeded'"]
