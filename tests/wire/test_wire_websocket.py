"""WebSocket frames: what a client may send, what it may not, and how little it may cost."""

import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.wire import websocket
from millstream.wire.websocket import (
    Close,
    Data,
    Event,
    FrameError,
    FrameReader,
    PingFrame,
    PongFrame,
)
from support.websocket_frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    KEY,
    PING,
    PONG,
    TEXT,
    bomb,
    deflated,
    frame,
    malformed,
)

LIMIT = (1 << 20) + 4096
MALFORMED = malformed()


def events(reader: FrameReader, data: bytes) -> list[Event]:
    reader.feed(data)
    found = []
    while (event := reader.next()) is not None:
        found.append(event)
    return found


def read(data: bytes, limit: int | None = None, step: int = 0) -> tuple[bytes, list[Event]]:
    """Return the stream of bytes and everything else, from input whole or in pieces."""
    reader = FrameReader(limit)
    pieces = [data[at : at + step] for at in range(0, len(data), step)] if step else [data]
    found = [event for piece in pieces for event in events(reader, piece)]
    stream = b"".join(event.payload for event in found if isinstance(event, Data))
    return stream, [event for event in found if not isinstance(event, Data)]


def test_the_examples_of_the_standard_are_read() -> None:
    assert read(bytes.fromhex("818537fa213d7f9f4d5158")) == (b"Hello", [])
    assert read(bytes.fromhex("898537fa213d7f9f4d5158")) == (b"", [PingFrame(b"Hello")])
    assert read(bytes.fromhex("8a8537fa213d7f9f4d5158")) == (b"", [PongFrame()])
    packed = frame(BINARY, bytes.fromhex("f248cdc9c90700"), rsv=4)
    assert read(packed, LIMIT) == (b"Hello", [])
    final = frame(BINARY, bytes.fromhex("f348cdc9c9070000"), rsv=4)
    assert read(final, LIMIT) == (b"Hello", [])
    stored = frame(BINARY, bytes.fromhex("000500faff48656c6c6f00"), rsv=4)
    assert read(stored, LIMIT) == (b"Hello", [])


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536, 300_000])
@pytest.mark.parametrize("packed", [False, True])
def test_every_form_of_length_is_read_and_written(size: int, packed: bool) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    payload = payload[:size]
    sent = frame(BINARY, deflated(payload) if packed else payload, rsv=4 if packed else 0)
    assert read(sent, LIMIT) == (payload, [])
    ours = websocket.encode(payload, packed)
    unmasked_length = ours[1]
    assert unmasked_length < 128
    assert (ours[0] & 0x40 != 0) == (packed and size >= 64)


def test_what_is_encoded_compressed_inflates_to_what_it_was() -> None:
    payload = b"MSG subject 1 5\r\nhello\r\n" * 100
    ours = websocket.encode(payload, True)
    assert len(ours) < len(payload) // 4
    head = 4 if ours[1] == 126 else 2
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    assert inflate.decompress(ours[head:] + b"\x00\x00\xff\xff") == payload


@pytest.mark.parametrize("step", [0, 1, 2, 3, 7, 64])
def test_a_message_in_fragments_is_one_stream_with_pings_between(step: int) -> None:
    sent = (
        frame(BINARY, b"PUB a ", fin=False)
        + frame(PING, b"there?")
        + frame(CONTINUATION, b"", fin=False)
        + frame(CONTINUATION, b"5\r\nhe", fin=False)
        + frame(PONG, b"ignored")
        + frame(CONTINUATION, b"llo\r\n")
        + frame(TEXT, "PING \N{EURO SIGN}\r\n".encode())
        + frame(CLOSE, b"\x03\xe8bye")
    )
    stream, others = read(sent, step=step)
    assert stream == b"PUB a 5\r\nhello\r\nPING \xe2\x82\xac\r\n"
    assert others == [PingFrame(b"there?"), PongFrame(), Close(1000)]


@pytest.mark.parametrize("step", [0, 1, 5])
def test_a_compressed_message_in_fragments_is_inflated_as_one(step: int) -> None:
    payload = b"PUB subject 5\r\nhello\r\n" * 50
    packed = deflated(payload)
    sent = (
        frame(BINARY, packed[:10], fin=False, rsv=4)
        + frame(PING)
        + frame(CONTINUATION, packed[10:20], fin=False)
        + frame(CONTINUATION, packed[20:])
        + frame(BINARY, b"PING\r\n")
        + frame(BINARY, deflated(b"PONG\r\n"), rsv=4)
    )
    assert read(sent, LIMIT, step) == (payload + b"PING\r\nPONG\r\n", [PingFrame(b"")])


def test_a_compressed_text_is_checked_too() -> None:
    with pytest.raises(FrameError, match="UTF-8"):
        read(frame(TEXT, deflated(b"\xff\xfe"), rsv=4), LIMIT)


@pytest.mark.parametrize("status", [1000, 1001, 1003, 1007, 1011, 1014, 3000, 4999])
def test_a_client_may_close_with_these(status: int) -> None:
    sent = frame(CLOSE, status.to_bytes(2, "big") + "tschüß".encode())
    assert read(sent) == (b"", [Close(status)])


def test_a_close_without_a_status_is_answered_without_one() -> None:
    assert read(frame(CLOSE)) == (b"", [Close(1005)])
    assert websocket.close(1005) == b"\x88\x00"
    assert websocket.close(1002, "no") == b"\x88\x04\x03\xeano"
    long = websocket.close(1002, "€" * 100)
    assert long[1] <= 125
    assert long[4:].decode().endswith("€...")


def test_there_are_enough_malformed_frames() -> None:
    assert len(MALFORMED) >= 300


@pytest.mark.parametrize("name", list(MALFORMED))
def test_a_malformed_frame_is_refused_however_it_is_cut(name: str) -> None:
    sent, status = MALFORMED[name]
    for step in (0, 1, 3):
        with pytest.raises(FrameError) as refused:
            read(sent, LIMIT, step)
        assert refused.value.status == status


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_compression_that_was_not_agreed_on_is_refused(opcode: int) -> None:
    with pytest.raises(FrameError, match="not agreed"):
        read(frame(opcode, deflated(b"PING\r\n"), rsv=4))


def test_a_head_is_refused_at_its_first_wrong_byte() -> None:
    reader = FrameReader()
    with pytest.raises(FrameError, match="unknown opcode"):
        events(reader, b"\x83")


def test_a_huge_frame_comes_out_as_it_arrives_and_nothing_is_kept() -> None:
    reader = FrameReader()
    tracemalloc.start()
    try:
        sent = frame(BINARY, b"", form=127, length=10 << 30)
        assert events(reader, sent) == []
        piece = bytes(256 * 1024)
        for _ in range(100):
            got = sum(len(event.payload) for event in events(reader, piece) if type(event) is Data)
            assert got == len(piece)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def drain_to(reader: FrameReader, sizes: list[int]) -> None:
    while (event := reader.next()) is not None:
        assert isinstance(event, Data)
        sizes.append(len(event.payload))


def test_a_bomb_ends_at_the_limit_and_costs_no_more() -> None:
    packed = bomb(10 << 30)
    assert len(packed) < 16 << 20
    reader = FrameReader(LIMIT)
    sent = frame(BINARY, packed, rsv=4)
    sizes: list[int] = []
    tracemalloc.start()
    try:
        reader.feed(sent[: 256 * 1024])
        with pytest.raises(FrameError) as refused:
            drain_to(reader, sizes)
        assert refused.value.status == websocket.Status.TOO_BIG
        assert max(sizes) <= websocket.PIECE
        assert sum(sizes) <= LIMIT
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("over", [0, 1])
def test_a_message_may_inflate_to_the_limit_and_no_further(over: int) -> None:
    payload = bytes(LIMIT + over)
    sent = frame(BINARY, deflated(payload), rsv=4) + frame(PING)
    if over:
        with pytest.raises(FrameError, match="more than allowed"):
            read(sent, LIMIT)
    else:
        assert read(sent, LIMIT) == (payload, [PingFrame(b"")])


@given(
    st.lists(
        st.tuples(st.binary(max_size=300), st.booleans(), st.booleans(), st.binary(max_size=3)),
        max_size=6,
    ),
    st.integers(1, 40),
)
def test_any_cut_of_any_messages_is_the_same_stream(
    messages: list[tuple[bytes, bool, bool, bytes]], step: int
) -> None:
    sent, expected, pings = b"", b"", []
    for payload, packed, split, ping in messages:
        body, rsv = (deflated(payload), 4) if packed else (payload, 0)
        half = len(body) // 2 if split else len(body)
        sent += frame(BINARY, body[:half], fin=not split, rsv=rsv, key=KEY)
        if ping:
            sent += frame(PING, ping)
            pings.append(PingFrame(ping))
        if split:
            sent += frame(CONTINUATION, body[half:], key=b"\x00\xff\x10\x01")
        expected += payload
    assert read(sent, LIMIT, step) == (expected, pings)
    assert read(sent, LIMIT) == (expected, pings)


@given(st.binary(max_size=200), st.integers(1, 20))
def test_noise_is_read_the_same_however_it_is_cut(noise: bytes, step: int) -> None:
    def outcome(step: int) -> tuple[bytes, list[Event]] | tuple[int, str]:
        try:
            return read(noise, LIMIT, step)
        except FrameError as error:
            return error.status, str(error)

    assert outcome(0) == outcome(step)
