import base64

import pytest

from millstream.wire import errors
from millstream.wire.connect import ConnectOptions, MalformedConnect, parse_connect
from millstream.wire.headers import (
    PLACE_FIELDS,
    MalformedHeaders,
    encode_headers,
    header,
    parse_headers,
    status,
    with_extras,
    without,
)
from millstream.wire.info import public_server_id, server_info


def test_absent_options_keep_their_defaults() -> None:
    asked = parse_connect(b'{"verbose":false,"unknown":[1],"user":null}', ConnectOptions())
    assert (asked.verbose, asked.echo, asked.headers, asked.user) == (False, True, False, "")


def test_a_later_connect_amends_the_former() -> None:
    first = parse_connect(b'{"echo":false,"pass":"x"}', ConnectOptions())
    second = parse_connect(b'{"name":"n"}', first)
    assert (second.echo, second.password, second.name) == (False, "x", "n")
    assert parse_connect(b"null", first) == first


def test_options_are_read_as_go_reads_them() -> None:
    said = b'{"VERBOSE":false,"verbose":null,"name":"\xff","Protocol":1,"pa\xc5\xbfs":"x"}'
    asked = parse_connect(said, ConnectOptions())
    assert (asked.verbose, asked.name, asked.protocol) == (False, "\ufffd", 1)
    assert asked.password == "x"
    for wrong in (b'{"protocol":1.0}', b'{"import":5}', b"{} {}", b"[" * 20_000):
        with pytest.raises(MalformedConnect):
            parse_connect(wrong, ConnectOptions())


@pytest.mark.parametrize("options", [b"", b"{", b"[]", b'"x"', b'{"verbose":1}', b'{"name":3}'])
def test_what_is_no_object_of_options_is_malformed(options: bytes) -> None:
    with pytest.raises(MalformedConnect):
        parse_connect(options, ConnectOptions())


def test_a_server_id_is_a_public_nkey() -> None:
    nkeys = pytest.importorskip("nkeys")
    server_id = public_server_id(bytes(range(32)))
    raw = base64.b32decode(server_id)
    assert (server_id[0], len(server_id)) == ("N", 56)
    assert raw[1:33] == bytes(range(32))
    assert int.from_bytes(raw[33:], "little") == nkeys.crc16(raw[:33])


def test_info_leaves_out_what_is_not_so() -> None:
    info = server_info(bytes(32), host="h", port=1, name="mill")
    assert b'"server_name":"mill"' in info.line()
    assert b"jetstream" not in info.line()
    assert b'"ldm":true' in info.with_(ldm=True).line()


def test_an_error_line_quotes_its_text() -> None:
    assert errors.err(errors.STALE_CONNECTION) == b"-ERR 'Stale Connection'\r\n"


def test_header_fields_keep_order_case_and_repetition() -> None:
    block = b"NATS/1.0\r\nA: 1\r\na:2\r\nA:  3 \r\n\r\n"
    assert parse_headers(block) == [(b"A", b"1"), (b"a", b"2"), (b"A", b"3")]
    assert header(block, b"a") == b"2"
    assert header(block, b"b") is None
    assert encode_headers([(b"A", b"1")]) == b"NATS/1.0\r\nA: 1\r\n\r\n"
    assert parse_headers(b"") == []


def test_a_status_is_read_from_the_first_line() -> None:
    assert status(b"NATS/1.0 404 No Messages\r\n\r\n") == (404, "No Messages")
    assert status(b"NATS/1.0 503\r\n\r\n") == (503, "")
    assert status(b"NATS/1.0\r\n\r\n") is None
    assert encode_headers([], b"404 No Messages") == b"NATS/1.0 404 No Messages\r\n\r\n"


@pytest.mark.parametrize(
    "block", [b"x", b"NATS/1.0", b"NATS/1.0\r\nA\r\n\r\n", b"NATS/1.0\r\nA: 1\r\n"]
)
def test_a_broken_header_block_is_refused(block: bytes) -> None:
    with pytest.raises(MalformedHeaders):
        parse_headers(block)


def test_tag_node_and_meta_travel_as_headers() -> None:
    assert with_extras(b"", b"t", b"", b"") == b"NATS/1.0\r\nMillstream-Tag: t\r\n\r\n"
    assert with_extras(b"NATS/1.0\r\nA: 1\r\n\r\n", b"a\nb", b"n", b"{}") == (
        b"NATS/1.0\r\nA: 1\r\nMillstream-Tag: a%0Ab\r\nMillstream-Node: n\r\n"
        b"Millstream-Meta: {}\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("block", "left"),
    [
        (b"NATS/1.0\r\nA: b\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n"),
        (
            b"NATS/1.0\r\nNats-Sequence: 9\r\nA: b\r\nNats-Sequence: 8\r\n\r\n",
            b"NATS/1.0\r\nA: b\r\n\r\n",
        ),
        (b"NATS/1.0\r\nNATS-SEQUENCE: 9\r\n nats-sequence : 8\r\n\r\n", b"NATS/1.0\r\n\r\n"),
        (b"NATS/1.0\r\nA: b\nNats-Sequence: 9\r\nC: d\r\n\r\n", b"NATS/1.0\r\nC: d\r\n\r\n"),
        (b"NATS/1.0\r\nA: b\r\n\r\nNats-Sequence: 9\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n"),
        (b"NATS/1.0\r\nA: b\r\nC: d", b"NATS/1.0\r\nA: b\r\nC: d\r\n\r\n"),
        (b"NATS/1.0\r\nA: Nats-Sequence: 9\r\n", b"NATS/1.0\r\nA: Nats-Sequence: 9\r\n\r\n"),
        (b"NATS/1.0", b"NATS/1.0\r\n\r\n"),
        (b"", b""),
    ],
)
def test_fields_that_the_server_writes_itself_are_left_out(block: bytes, left: bytes) -> None:
    assert without(block, PLACE_FIELDS) == left
