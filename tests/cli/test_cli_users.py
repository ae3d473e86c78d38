"""``millstream user``: a running server takes the users over, at both doors."""

import json
from pathlib import Path

import pytest

from support.broker import millstream
from support.command_line import Terminal, run
from support.waiting import until


def test_users_close_both_doors_and_the_last_one_opens_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    with millstream(data_dir=data) as broker:
        here = ("--data-dir", str(data))
        anyone = Terminal(capsys, "-s", broker.url)
        assert anyone("account", "info").code == 0
        done = run(capsys, ["user", "add", "ada", "--password-stdin", *here], b"s3cret\n")
        assert done.code == 0, done.err
        assert "NATS and HTTP answer only to users" in done.err
        until(lambda: anyone("rtt", "--count", "1").code == 1)
        assert "refused the credentials" in anyone("rtt").err
        ada = Terminal(capsys, "-s", broker.url, "--user", "ada", "--password", "s3cret")
        assert ada("rtt", "--count", "1").code == 0
        web = f"http://127.0.0.1:{broker.http_port}"
        assert run(capsys, ["topic", "ls", "--http-url", web]).code == 1
        assert ada("topic", "ls", "--http-url", web).code == 0
        narrow = ["user", "add", "bob", "--password-stdin", "--publish", "a.>", *here]
        assert run(capsys, narrow, b"b0b\n").code == 0
        bob = Terminal(capsys, "-s", broker.url, "--user", "bob", "--password", "b0b")
        until(lambda: bob("rtt", "--count", "1").code == 0)
        refused = bob("pub", "b.x", "1", "--no-ack")
        assert (refused.code, "Permissions Violation" in refused.err) == (1, True)
        listed = run(capsys, ["user", "ls", "--json", *here]).out.splitlines()
        assert [json.loads(line)["user"] for line in listed] == ["ada", "bob"]
        assert "s3cret" not in (data / "users.conf").read_text()
        assert run(capsys, ["user", "passwd", "ada", "--password-stdin", *here], b"n3w\n").code == 0
        until(lambda: ada("rtt", "--count", "1").code == 1)
        assert "did you mean 'bob'" in run(capsys, ["user", "rm", "bo", "-f", *here]).err
        for name in ("ada", "bob"):
            assert run(capsys, ["user", "rm", name, "--force", *here]).code == 0
        until(lambda: anyone("rtt", "--count", "1").code == 0)


def test_users_of_two_files_are_in_each_other_s_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = ("--data-dir", str(tmp_path))
    assert run(capsys, ["user", "add", "ada", "--password-stdin", *here], b"x\n").code == 0
    conf = tmp_path / "server.conf"
    conf.write_text("authorization { token: t }")
    done = run(capsys, ["serve", "-c", str(conf), *here])
    assert done.code == 1
    assert "both name users: keep one" in done.err
