"""Commands over HTTPS: whom they trust, and what they say of a certificate that they do not."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.cli import main
from millstream.client.async_topics import AsyncTopics
from millstream.client.errors import CertificateRefused
from millstream.client.http_link import trusting
from millstream.client.patience import is_away
from millstream.client.topics import Topics
from support.certificates import Authority
from support.peers import free_port, running


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def url(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory, server = tmp_path_factory.mktemp("server"), authority.server()
    port, http_port = free_port(), free_port()
    config = directory / "server.conf"
    config.write_text(
        f'https: "127.0.0.1:{http_port}"\n'
        f'tls {{ cert_file: "{server.cert_file}", key_file: "{server.key_file}" }}\n'
    )
    command = [
        *(sys.executable, "-m", "millstream", "serve", "-c", str(config)),
        *("--port", str(port), "--data-dir", str(directory / "data")),
    ]
    with running("millstream", command, port, directory, http_port):
        yield f"https://127.0.0.1:{http_port}"


def test_an_authority_is_trusted_that_was_named(
    url: str,
    authority: Authority,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Topics(url, tls=trusting(authority.ca_file)) as topics:
        topics.topic("jobs").put(type="queue", max_deliveries=1, dead_letter="dead")
        topics.topic("jobs").append(1)
    named = ["--http-url", url, "--tls-ca", authority.ca_file]
    assert main.run(["work", "jobs", *named, "--", "false"]) == 1
    assert f"--tls-ca {authority.ca_file}" in capsys.readouterr().out
    monkeypatch.setenv("MILLSTREAM_TLS_CA", authority.ca_file)
    assert main.run(["dlq", "ls", "--http-url", url]) == 0
    assert capsys.readouterr().out == "dead   1   from jobs\n"


@pytest.mark.parametrize("command", [["dlq", "ls"], ["dlq", "replay", "d"], ["work", "q"]])
def test_a_certificate_that_is_not_trusted_is_told_as_such(
    url: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    rest = ["--", "true"] if command[0] == "work" else []
    assert main.run([*command, "--http-url", url, *rest]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"millstream: the certificate of {url} is not trusted (")
    assert "--tls-ca" in told
    assert "is `millstream serve` running" not in told
    assert told.count("\n") == 1


def test_a_file_without_certificates_is_told_by_name(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing\n")
    for path in (empty, tmp_path / "missing.pem"):
        assert main.run(["dlq", "ls", "--http-url", url, "--tls-ca", str(path)]) == 1
        told = capsys.readouterr().err
        assert told.startswith(f"millstream: no certificates can be read from {path} (")


async def test_nobody_waits_for_a_certificate_to_become_trusted(url: str) -> None:
    async with AsyncTopics(url) as topics:
        with pytest.raises(CertificateRefused) as refused:
            await topics.topic("a").state()
    assert not is_away(refused.value)
