"""Every line that an operator must act on has a code, in text and in JSON."""

import ast
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import millstream
from millstream.log_codes import CODES, code_of, explain
from millstream.server.process.log_lines import JsonLines, TextLines

SOURCE = Path(millstream.__file__).parent
TOLD = {"warning", "error", "exception", "critical"}

# What needs no act: it tells of what the server already did, or of what a client did wrong.
NO_ACT = {
    "connection not accepted peer=%s error=%s": "one client, gone before it was greeted",
    "http connection not established": "one client, gone before it was greeted",
    "http drain gave up waiting connections=%d": "the server stops; clients did not end",
    "http connection closed: %s": "what a client did wrong, as it was told",
    "PROXY header refused peer=%s error=%s": "one client, gone before it was greeted",
    "Publish Violation - Subject %s cid=%d": "what a client did wrong, as it was told",
    "trace destination %r is not valid cid=%d": "what a client did wrong",
    "message tracing disabled cid=%d: an older server traced it": "only the trace ends",
    "%s: %s": "a link's own words; the line before has a code",
    "%s - %s": "what a client did wrong, as it was told",
    "a request of the system account is not understood: %s": "as the client was told",
    "%s: the default holds": "said at the start, with the setting",
    "default_js_domain: account %s has JetStream here, so it keeps it": "said at the start",
    "repaired from the wal file=%s offset=%d": "mended",
    "torn tail cut file=%s offset=%d": "what a crash leaves: nothing of it was acked",
    "another member has raised the head snapshot=%s": "everything is brought there anew",
    "nothing fetched ahead error=%s": "a take-over fetches it",
    "torn end of a full wal file file=%s offset=%d": "what a crash leaves",
    "wal file before is empty, its content torn file=%s": "what a crash leaves",
}


def templates() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name.split("/")[0] in {"cli", "spark", "pipelines", "client"}:
            continue  # no server: they end with an error
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in TOLD
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "log"
                and isinstance(node.args[0], ast.Constant)
            ):
                yield name, str(node.args[0].value)


def test_every_warning_and_error_of_the_server_has_a_code_or_needs_no_act() -> None:
    found = {text: name for name, text in templates()}
    assert len(found) > 60
    assert [
        (name, text) for text, name in found.items() if code_of(text) is None and text not in NO_ACT
    ] == []


def test_no_code_is_given_twice_and_each_says_what_to_do() -> None:
    assert len({each.code for each in CODES}) == len(CODES)
    assert all(each.means.endswith(".") and each.do.endswith(".") for each in CODES)


def test_a_code_is_explained_by_its_name() -> None:
    found = explain("ms1001")
    assert found is not None
    assert "start the server again" in found.do
    assert explain("MS0000") is None


@pytest.fixture
def written() -> Iterator[tuple[logging.Logger, io.StringIO, logging.Handler]]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    log = logging.getLogger("millstream.test_log_codes")
    log.propagate = False
    log.addHandler(handler)
    yield log, stream, handler
    log.removeHandler(handler)


def test_a_line_ends_with_its_code(
    written: tuple[logging.Logger, io.StringIO, logging.Handler],
) -> None:
    log, stream, handler = written
    handler.setFormatter(TextLines())
    log.error("shard is read-only shard=%d step=%s error=%s", 0, "sync", "EIO")
    assert stream.getvalue().rstrip().endswith("error=EIO [MS1001]")


def test_json_lines_have_level_code_and_traceback_in_one_line(
    written: tuple[logging.Logger, io.StringIO, logging.Handler],
) -> None:
    log, stream, handler = written
    handler.setFormatter(JsonLines())
    try:
        raise ValueError("no\nsuch")
    except ValueError:
        log.exception("request failed method=%s path=%r", "GET", "/\n")
    (line,) = stream.getvalue().splitlines()
    told = json.loads(line)
    assert (told["level"], told["code"]) == ("error", "MS5011")
    assert told["logger"] == "millstream.test_log_codes"
    assert "ValueError" in told["traceback"]
    assert told["time"].endswith("Z")
