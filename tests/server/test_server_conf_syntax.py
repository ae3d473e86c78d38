from datetime import UTC, datetime

import pytest

from millstream.server.conf.syntax import ConfError, parse


def test_separators_comments_and_terminators_mean_the_same() -> None:
    text = "a: 1, b = two; c three # note\n// whole line\n\"d d\" : 'x # y'\n"

    assert parse(text) == {"a": 1, "b": "two", "c": "three", "d d": "x # y"}


def test_a_file_in_braces_is_read_as_json() -> None:
    assert parse('{"a": 1, "b": {"c": [1, "2", true]}}') == {"a": 1, "b": {"c": [1, "2", True]}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8MB", 8 * 1024**2),
        ("8m", 8_000_000),
        ("1kib", 1024),
        ("-1", -1),
        ("1.5", 1.5),
        ("off", False),
        ("YES", True),
        ("0.0.0.0", "0.0.0.0"),
        ("127.0.0.1:4222", "127.0.0.1:4222"),
        ("nats://a:1/x", "nats://a:1/x"),
        ("2016-05-04T18:53:41Z", datetime(2016, 5, 4, 18, 53, 41, tzinfo=UTC)),
        ('"a\\x41\\n\\"b"', 'aA\n"b'),
        ("'a\\n'", "a\\n"),
        ("$2a$11$abc/def", "$2a$11$abc/def"),
        ("30s", "30s"),
    ],
)
def test_a_value_gets_its_type_from_its_spelling(text: str, value: object) -> None:
    assert parse(f"key: {text}\n") == {"key": value}


def test_variables_look_outward_through_blocks_and_then_the_environment() -> None:
    conf = parse("P = 1\nb { Q = two\n c { d = $P, e = $Q, f = $R } }", environment={"R": "8KB"})

    assert conf["b"] == {"Q": "two", "c": {"d": 1, "e": "two", "f": 8192}}


def test_an_include_lands_in_the_block_that_names_it() -> None:
    files = {"conf/users.conf": "user: a\npassword: $PW\n"}
    conf = parse(
        "PW = x\nauthorization {\n include 'users.conf'\n}\n",
        "conf/main.conf",
        read=files.__getitem__,
    )

    assert conf["authorization"] == {"user": "a", "password": "x"}


def test_an_include_of_itself_is_refused() -> None:
    with pytest.raises(ConfError, match="includes itself"):
        parse("include a.conf\n", "a.conf", read=lambda _path: "include a.conf\n")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb {\n c: 1\n", 2, "never closed"),
        ("a =\n\n", 3, "has no value"),
        ("a = [1, 2\n", 1, "never closed"),
        ("\n}\n", 2, "no block is open"),
        ('a = "x\n', 1, "never closed"),
        ("\n\na: $NOPE\n", 3, "NOPE is not set"),
        ("= 3\n", 1, "where a key should be"),
        ("a: {b: 1} x\n", 1, "expected a new line"),
        ('a: "\\q"\n', 1, "unknown escape"),
        ("a: 99999999999999999999\n", 1, "out of range"),
    ],
)
def test_a_mistake_is_told_with_its_file_and_line(text: str, line: int, words: str) -> None:
    with pytest.raises(ConfError) as caught:
        parse(text, "m.conf")

    assert (caught.value.file, caught.value.line) == ("m.conf", line)
    assert words in caught.value.message


def test_places_tell_where_a_key_was_written() -> None:
    conf = parse("a: 1\nb {\n  c: 2\n}\n", "m.conf")

    assert conf.places == {"a": ("m.conf", 1), "b": ("m.conf", 2)}
