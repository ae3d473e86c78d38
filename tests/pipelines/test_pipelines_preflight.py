"""Before Spark starts: every stream is looked for where it is, and created last."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from millstream.cli.main import run
from millstream.client.blocking import connect
from millstream.client.streams import open_streams
from millstream.pipelines.file.document import Document
from millstream.pipelines.file.parse import parse
from millstream.pipelines.preflight import preflight
from millstream.pipelines.problems import PipelineError
from support.broker import millstream
from support.nats_server import nats_server
from support.peers import Peer


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """A server that knows its users."""
    config = tmp_path_factory.mktemp("guarded") / "server.conf"
    config.write_text('authorization { users: [{user: "ann", password: "p w@d"}] }\n')
    with millstream(extra=["--config", str(config)]) as peer:
        yield peer


def create(url: str, name: str) -> None:
    with connect(url) as client:
        config = {"name": name, "subjects": [f"{name.lower()}.>"]}
        client.request(f"$JS.API.STREAM.CREATE.{name}", json.dumps(config).encode())


def names(url: str) -> list[str]:
    with closing(open_streams(url)) as streams:
        return streams.names()


def checked(url: str, source: dict[str, Any], *sinks: dict[str, Any], **top: Any) -> None:
    data = {"sources": {"a": source}, "sinks": [{"from": "a", **sink} for sink in sinks], **top}
    preflight(parse(Document("p", data), {"url": url}))


def test_a_sink_is_looked_for_and_created_at_its_own_server(broker: Peer) -> None:
    create(broker.url, "HERE")
    with nats_server("-js") as plain:
        there = {"delivery": "at-least-once", "url": plain.url}
        made = {"stream": "MADE", "subject": "made.x", "create": ["made.>"], "options": there}
        checked(broker.url, {"stream": "HERE"}, made)
        assert names(plain.url) == ["MADE"]
        assert "MADE" not in names(broker.url)
        checked(broker.url, {"stream": "HERE"}, {"stream": "MADE", "options": there})
        with pytest.raises(PipelineError, match="a sink: no stream is named 'HERE'"):
            checked(broker.url, {"stream": "HERE"}, {"stream": "HERE", "options": there})


def test_nothing_is_created_while_a_source_is_missing(broker: Peer) -> None:
    bad = {"stream": "CLICKY-BAD", "create": ["clicky-bad.>"]}
    source = {"stream": "CLICKY", "json": "id int", "quarantine": bad}
    with pytest.raises(PipelineError, match="no stream is named 'CLICKY'") as refusal:
        checked(broker.url, source, {"parquet": "x"})
    assert "CLICKY-BAD" not in str(refusal.value)
    assert "CLICKY-BAD" not in names(broker.url)


def test_over_http_a_stream_is_created_with_its_subjects_and_as_the_user(guarded: Peer) -> None:
    url = f"http://127.0.0.1:{guarded.http_port}"
    target = {"stream": "BY-HTTP", "subject": "by-http.x", "create": ["by-http.>", "more.*"]}
    login = {"user": "ann", "password": "p w@d"}
    checked(url, {"stream": "BY-HTTP"}, target, **login)
    with connect(guarded.url.replace("://", "://ann:p%20w%40d@")) as client:
        info = json.loads(client.request("$JS.API.STREAM.INFO.BY-HTTP").payload)
    assert info["config"]["subjects"][:2] == ["by-http.>", "more.*"]


def test_tables_are_looked_for_before_spark_starts(broker: Peer, tmp_path: Path) -> None:
    def told(source: dict[str, Any]) -> str:
        with pytest.raises(PipelineError) as refusal:
            checked(broker.url, source, {"parquet": str(tmp_path / "out")})
        return str(refusal.value)

    there, away = tmp_path / "there", tmp_path / "away"
    (there / "_delta_log").mkdir(parents=True)
    assert told({"parquet": str(away)}) == f"source 'a': there is no table at {away}"
    assert told({"delta": str(tmp_path)}) == f"source 'a': {tmp_path} is no Delta table"
    assert told({"parquet": str(there)}).endswith("is a Delta table: read it as delta")
    checked(broker.url, {"delta": str(there)}, {"parquet": str(tmp_path / "out")})
    checked(broker.url, {"parquet": str(tmp_path / "*")}, {"parquet": str(tmp_path / "out")})
    data = {"sources": {"a": {"parquet": str(away)}}, "sinks": [{"from": "a", "parquet": "x"}]}
    preflight(parse(Document("p", data)), local=False)  # a directory of another machine


def test_a_catalog_that_does_not_open_is_told_before_spark_starts(broker: Peer) -> None:
    pytest.importorskip("pyiceberg", reason="Iceberg tables need pyiceberg")
    source = {"iceberg": "db.rows", "catalog": {"type": "sqll", "uri": "sqlite:///x"}}
    with pytest.raises(PipelineError, match="'a': the Iceberg catalog does not open: 'sqll'"):
        checked(broker.url, source, {"parquet": "x"})


def test_a_name_that_no_stream_can_have_is_told(broker: Peer) -> None:
    create(broker.url, "NAMED")
    with pytest.raises(
        PipelineError, match=r"cannot create 'OUT\.x': the name of a stream may not"
    ):
        checked(broker.url, {"stream": "NAMED"}, {"stream": "OUT.x", "create": ["out.>"]})


@pytest.mark.parametrize("command", ["archive", "rollup", "audit", "replay"])
def test_ready_made_pipelines_take_credentials(
    guarded: Peer, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = {
        "archive": ["NONE", "--to", str(tmp_path / "x")],
        "rollup": ["NONE", "--to", str(tmp_path / "x")],
        "replay": [str(tmp_path), "--to", "NONE"],
        "audit": ["NONE"],
    }[command]
    at = ["pipeline", command, *arguments, "-s", guarded.url]
    assert run([*at, "--user", "ann", "--password", "wrong"]) == 1
    assert "refused the credentials" in capsys.readouterr().err
    assert run([*at, "--user", "ann", "--password", "p w@d"]) == 1
    assert "no stream" in (told := capsys.readouterr().err), told
    assert run([*at, "--creds", str(tmp_path / "absent")]) == 1
    assert "cannot read" in capsys.readouterr().err


def test_an_audit_of_a_pattern_that_fits_nothing_is_told(
    broker: Peer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "audit", "NOPE*", "-s", broker.url]) == 1
    assert "no stream matches 'NOPE*'" in capsys.readouterr().err


def test_a_pattern_has_to_fit_a_stream_unless_the_pipeline_goes_on(
    broker: Peer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(broker.url, "FITS-1")
    checked(broker.url, {"stream": "FITS-*"}, {"parquet": "x"})
    checked(broker.url, {"stream": "NOPE-*"}, {"parquet": "x"}, run="continuous")
    table = str(tmp_path / "x")
    assert run(["pipeline", "archive", "NOPE-*", "--to", table, "-s", broker.url]) == 1
    assert "no stream matches 'NOPE-*'; there are" in capsys.readouterr().err
