"""``millstream nats-server`` as launchers and operators meet it: processes, files, signals."""

import asyncio
import json
import re
import signal
import ssl
import subprocess
import urllib.request
from pathlib import Path

import pytest
from nats.errors import NoRespondersError

import nats
from support.certificates import Authority
from support.clients import flushed
from support.server_process import LIMIT, OURS, Wire, started
from support.waiting import until


def finished(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*OURS, *arguments], capture_output=True, text=True, timeout=LIMIT, check=False
    )


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return tmp_path / "nats.conf"


def test_the_version_is_the_one_that_clients_are_told() -> None:
    assert finished("-v").stdout == "nats-server: v2.15.1\n"


def test_help_lists_the_flags() -> None:
    shown = finished("-h")
    assert shown.returncode == 0
    assert "--ports_file_dir" in shown.stdout


def test_an_unknown_flag_is_refused() -> None:
    done = finished("-zz")
    assert done.returncode == 1
    assert done.stderr == "nats-server: flag provided but not defined: -zz\n"


def test_a_file_can_be_checked_alone(conf: Path) -> None:
    conf.write_text("port: 4222\n")
    good = finished("-t", "-c", str(conf))
    assert good.returncode == 0
    assert f"configuration file {conf} is valid (sha256:" in good.stderr
    conf.write_text("prot: 4222\nmax_payload: none\n")
    bad = finished("-t", "-c", str(conf))
    assert bad.returncode == 1
    assert bad.stderr == (
        f"nats-server: {conf}:1: 'prot' is not a known setting: did you mean 'port'?\n"
        f"{conf}:2: 'max_payload' must be a whole number, without quotes, not the string 'none'\n"
    )


def test_a_wrong_file_starts_nothing(conf: Path) -> None:
    conf.write_text("no_auth_user: nobody\n")
    done = finished("-p", "-1", "-c", str(conf))
    assert done.returncode == 1
    complaint = "no_auth_user 'nobody' is not among the users: add it there"
    assert done.stderr == f"nats-server: {conf}:1: {complaint}\n"


def test_a_missing_file_is_named() -> None:
    done = finished("-c", "/nowhere/nats.conf")
    assert done.returncode == 1
    assert done.stderr == "nats-server: /nowhere/nats.conf: No such file or directory\n"


def test_launchers_find_the_log_lines_and_files_that_they_wait_for(tmp_path: Path) -> None:
    pid = tmp_path / "x.pid"
    with started("-m", "-1", "-P", str(pid), "--ports_file_dir", str(tmp_path)) as server:
        url = server.ready()
        when = r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6}"
        for line in server.lines:
            assert re.match(rf"\[{server.process.pid}\] {when} \[(INF|WRN)\] ", line), line
        assert pid.read_text() == f"{server.process.pid}"
        file = tmp_path / f"nats-server_{server.process.pid}.ports"
        ports = json.loads(file.read_text())
        assert ports["nats"] == [url]
        with urllib.request.urlopen(ports["monitoring"][0] + "/varz", timeout=LIMIT) as answer:
            assert json.load(answer)["port"] == int(url.rpartition(":")[2])
        server.tell(signal.SIGTERM)
        assert server.exit_code() == 0
        assert not pid.exists()
        assert not file.exists()


def test_the_monitoring_port_does_not_write() -> None:
    with started("-js", "-sd", "/nonexistent-unless-js", "-js=false", "-m", "-1") as server:
        address = server.until(r"Starting http monitor on (\S+)")[1]
        server.ready()
        request = urllib.request.Request(f"http://{address}/v0/topics", b"{}", method="POST")
        with pytest.raises(urllib.error.HTTPError) as failure:
            urllib.request.urlopen(request, timeout=LIMIT)
        failure.value.close()
        assert failure.value.code == 404


async def test_jetstream_is_off_until_it_is_asked_for() -> None:
    with started() as server:
        client = await nats.connect(server.ready(), allow_reconnect=False)
        with pytest.raises(NoRespondersError):
            await client.request("$JS.API.INFO", b"", timeout=5)
        await client.close()


async def test_streams_are_kept_in_the_store_directory(tmp_path: Path) -> None:
    for expected in (1, 2):
        with started("-js", "-sd", str(tmp_path / "kept")) as server:
            client = await nats.connect(server.ready(), allow_reconnect=False)
            stream = client.jetstream()
            await stream.add_stream(name="S", subjects=["s"])
            assert (await stream.publish("s", b"x")).seq == expected
            await client.close()


async def test_accounts_with_jetstream_keep_streams_of_their_own(tmp_path: Path) -> None:
    conf = tmp_path / "nats.conf"
    account = "{{ users: [{{user: {0}, pass: {0}}}], jetstream: enabled }}"
    accounts = f"accounts {{ A {account.format('a')}, B {account.format('b')} }}"
    write(conf, f"jetstream {{ store_dir: '{tmp_path / 'kept'}' }}\n{accounts}\n")
    for expected in (1, 2):
        with started("-c", str(conf)) as server:
            url = server.ready()
            for name in ("a", "b"):
                client = await nats.connect(url, user=name, password=name, allow_reconnect=False)
                stream = client.jetstream()
                await stream.add_stream(name="S", subjects=["s"])
                assert (await stream.publish("s", name.encode())).seq == expected
                assert (await stream.get_msg("S", expected)).data == name.encode()
                await client.close()


def test_a_warning_tells_that_anyone_may_connect() -> None:
    with started("-a", "0.0.0.0") as server:
        server.ready()
        assert any("[WRN] Anyone who can reach 0.0.0.0" in line for line in server.lines)


def test_without_log_time_lines_have_none(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    with started("-T=false", "-l", str(file), "-P", str(tmp_path / "pid")) as server:
        until(lambda: file.exists() and "Server is ready" in file.read_text())
        assert f"[{server.process.pid}] [INF] Server is ready\n" in file.read_text()


def test_the_log_file_is_opened_anew_on_sigusr1(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    with started("-l", str(file)) as server:
        until(lambda: file.exists() and "Server is ready" in file.read_text())
        file.rename(tmp_path / "moved.log")
        server.tell(signal.SIGUSR1)
        until(lambda: file.exists() and "File log re-opened" in file.read_text())


def write(file: Path, text: str) -> None:
    file.write_text(text)


def test_a_reload_applies_what_can_change_and_names_the_rest(conf: Path, tmp_path: Path) -> None:
    conf.write_text("ping_max: 2\n")
    with started("-c", str(conf)) as server:
        server.ready()
        conf.write_text(f"ping_max: 3\nserver_name: other\npid_file: '{tmp_path / 'pid'}'\n")
        server.tell(signal.SIGHUP)
        server.until("Reloaded server configuration")
        said = "\n".join(server.lines)
        assert "[INF] Reloaded: limits.ping_max" in said
        assert "[WRN] Reload: 'server_name' stays as it is: clients and streams know" in said
        assert (tmp_path / "pid").read_text() == f"{server.process.pid}"


def test_a_reload_holds_clients_to_the_new_limits(conf: Path) -> None:
    conf.write_text("max_subscriptions: 10\n")
    with started("-c", str(conf)) as server, Wire(server.ready()) as client:
        client.say('CONNECT {"verbose":false}\r\nSUB a 1')
        assert client.answers() == []
        conf.write_text("max_subscriptions: 1\n")
        server.tell(signal.SIGHUP)
        server.until("Reloaded server configuration")
        client.say("SUB b 2")
        assert client.answers() == ["-ERR 'maximum subscriptions exceeded'"]


def test_a_reload_drops_users_that_changed_and_keeps_the_others(conf: Path) -> None:
    users = "authorization {{ users: [{{user: a, pass: {}}}, {{user: b, pass: 2}}] }}"
    conf.write_text(users.format("'1'").replace("pass: 2", "pass: '2'"))
    with started("-c", str(conf)) as server:
        url = server.ready()
        with Wire(url) as a, Wire(url) as b:
            a.say('CONNECT {"verbose":false,"user":"a","pass":"1"}')
            b.say('CONNECT {"verbose":false,"user":"b","pass":"2"}')
            assert a.answers() == b.answers() == []
            conf.write_text(users.format("other").replace("pass: 2", "pass: '2'"))
            server.tell(signal.SIGHUP)
            server.until("Reloaded server configuration")
            assert list(a.rest()) == ["-ERR 'Authorization Violation'"]
            assert b.answers() == []
        assert any("Reloaded: dropped users=a" in line for line in server.lines)


def test_the_system_account_may_order_a_reload(conf: Path) -> None:
    text = "system_account: S\naccounts { S { users: [{user: s, pass: p}] } }\nping_max: "
    conf.write_text(text + "2\n")
    with started("-c", str(conf)) as server, Wire(server.ready()) as admin:
        admin.say('CONNECT {"verbose":false,"user":"s","pass":"p"}')
        conf.write_text(text + "3\n")
        admin.say(f"PUB $SYS.REQ.SERVER.{admin.info['server_id']}.RELOAD 0\r\n")
        server.until("Reloaded: limits.ping_max")
        server.until("Reloaded server configuration")


def test_credentials_of_the_command_line_are_asked_for() -> None:
    with started("--user", "a", "--pass", "b") as server:
        url = server.ready()
        with Wire(url) as stranger, Wire(url) as friend:
            assert stranger.info["auth_required"]
            stranger.say('CONNECT {"verbose":false,"user":"a","pass":"c"}')
            assert stranger.answers() == ["-ERR 'Authorization Violation'"]
            friend.say('CONNECT {"verbose":false,"user":"a","pass":"b"}')
            assert friend.answers() == []
        assert not any("[WRN]" in line for line in server.lines)


async def test_tls_of_the_command_line_is_spoken(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    shown = authority.server()
    files = ("--tlscert", shown.cert_file, "--tlskey", shown.key_file)
    with started("--tls", *files) as server:
        url = server.ready()
        assert any("TLS required for client connections" in line for line in server.lines)
        context = ssl.create_default_context(cafile=authority.ca_file)
        client = await nats.connect(
            url.replace("127.0.0.1", "localhost"), tls=context, allow_reconnect=False
        )
        await flushed(client)
        await client.close()


def test_monitoring_can_be_https(conf: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    shown = authority.server()
    conf.write_text(f"tls {{ cert_file: '{shown.cert_file}', key_file: '{shown.key_file}' }}\n")
    with started("-c", str(conf), "-ms", "-1", "--ports_file_dir", str(tmp_path)) as server:
        address = server.until(r"Starting https monitor on (\S+)")[1]
        server.ready()
        ports = json.loads(next(tmp_path.glob("*.ports")).read_text())
        assert ports["monitoring"] == [f"https://{address}"]
        context = ssl.create_default_context(cafile=authority.ca_file)
        url = ports["monitoring"][0] + "/varz"
        with urllib.request.urlopen(url, timeout=LIMIT, context=context) as answer:
            assert json.load(answer)["tls_required"] is True


def test_a_websocket_is_named_in_the_log_and_in_the_ports_file(conf: Path, tmp_path: Path) -> None:
    conf.write_text("websocket { port: -1, host: 127.0.0.1, no_tls: true }\n")
    with started("-c", str(conf), "--ports_file_dir", str(tmp_path)) as server:
        url = server.until(r"Listening for websocket clients on (\S+)")[1]
        server.ready()
        ports = json.loads(next(tmp_path.glob("*.ports")).read_text())
        assert ports["websocket"] == [url]
        assert url.startswith("ws://127.0.0.1:")


def test_a_file_that_became_wrong_changes_nothing(conf: Path) -> None:
    conf.write_text("ping_max: 2\n")
    with started("-c", str(conf)) as server:
        url = server.ready()
        conf.write_text("ping_max: many\n")
        server.tell(signal.SIGHUP)
        server.until(r"\[ERR\] Failed to reload server configuration, going on as before: ")
        assert f"{conf}:1: 'ping_max' must be a whole number" in server.lines[-1]
        assert asyncio.run(answers(url))


async def answers(url: str) -> bool:
    client = await nats.connect(url)
    await flushed(client)
    await client.close()
    return True


async def test_a_lame_duck_sends_its_clients_away_and_ends() -> None:
    with started() as server:
        url = server.ready()
        port = int(url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await reader.readline()
        writer.write(b'CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n')
        while (await reader.readline()) != b"PONG\r\n":
            pass
        server.tell(signal.SIGUSR2)
        server.until("Entering lame duck mode, stop accepting new clients")
        while b'"ldm":true' not in (line := await reader.readline()):
            assert line
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        server.tell(signal.SIGTERM)
        while await reader.readline():
            pass
        writer.close()
        assert server.exit_code() == 0


def test_a_lame_duck_closes_its_clients_after_the_grace_period(conf: Path) -> None:
    conf.write_text("lame_duck_grace_period: '1ms'\nlame_duck_duration: '30s'\n")
    with started("-c", str(conf)) as server, Wire(server.ready()) as client:
        client.say('CONNECT {"verbose":false,"protocol":1}')
        assert len(client.answers()) <= 1
        server.tell(signal.SIGUSR2)
        (told,) = [json.loads(line[5:]) for line in client.rest() if '"ldm":true' in line]
        assert told == {**client.info, "ldm": True}
        server.until("Closing existing clients: 1")
        assert server.exit_code() == 0


def test_a_lame_duck_without_clients_ends_at_once() -> None:
    with started() as server:
        server.ready()
        server.tell(signal.SIGUSR2)
        assert server.exit_code() == 0


def test_a_running_server_is_told_by_its_pid_file(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with started("-P", str(pid)) as server:
        server.ready()
        assert finished("--signal", f"term={pid}").returncode == 0
        assert server.exit_code() == 0


def test_a_taken_port_is_told() -> None:
    with started() as server:
        port = server.ready().rpartition(":")[2]
        done = finished("-a", "127.0.0.1", "-p", port)
        assert done.returncode == 1
        fix = "stop what listens there, or choose another port with -p"
        assert done.stderr.endswith(f"nats-server: 127.0.0.1:{port} is taken: {fix}\n")
