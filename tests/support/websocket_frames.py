"""WebSocket frames as a client would send them, right and wrong."""

import zlib

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
KEY = b"\x37\xfa\x21\x3d"


def frame(
    opcode: int,
    payload: bytes = b"",
    *,
    fin: bool = True,
    rsv: int = 0,
    key: bytes | None = KEY,
    form: int | None = None,
    length: int | None = None,
) -> bytes:
    """Return a frame; ``form`` and ``length`` say something else than the payload's size."""
    size = len(payload) if length is None else length
    if form is None:
        form = size if size < 126 else 126 if size < 1 << 16 else 127
    more = {126: 2, 127: 8}.get(form, 0)
    head = bytes([fin << 7 | rsv << 4 | opcode, (key is not None) << 7 | form])
    head += (size & (1 << 64) - 1).to_bytes(8, "big")[8 - more :]
    return head + payload if key is None else head + key + masked(payload, key)


def bomb(size: int, text: bytes = b"PING\r\n") -> bytes:
    """Return a small message that inflates to about ``size`` bytes."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    piece = text * (6_000_000 // len(text))
    packed = deflate.compress(piece) + deflate.flush(zlib.Z_FULL_FLUSH)
    return packed * (size // len(piece))  # full flushes make the pieces independent


def masked(payload: bytes, key: bytes = KEY) -> bytes:
    pad = (key * (len(payload) // 4 + 1))[: len(payload)]
    mixed = int.from_bytes(payload, "little") ^ int.from_bytes(pad, "little")
    return mixed.to_bytes(len(payload), "little")


def deflated(payload: bytes) -> bytes:
    """Return a message as permessage-deflate sends it."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = deflate.compress(payload) + deflate.flush(zlib.Z_SYNC_FLUSH)
    return packed.removesuffix(b"\x00\x00\xff\xff")


def malformed() -> dict[str, tuple[bytes, int]]:
    """Return input that no client may send, each with the status that answers it.

    Compression is agreed on, so a set RSV1 alone is no mistake of a first data frame.
    """
    return {
        **_opcodes(),
        **_reserved_bits(),
        **_unmasked(),
        **_control(),
        **_lengths(),
        **_sequences(),
        **_statuses(),
        **_data(),
    }


def _opcodes() -> dict[str, tuple[bytes, int]]:
    return {
        f"opcode {opcode} fin {fin} of {size}": (frame(opcode, bytes(size), fin=fin), 1002)
        for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)
        for fin in (False, True)
        for size in (0, 1, 2, 125, 126)
    }


def _reserved_bits() -> dict[str, tuple[bytes, int]]:
    return {
        f"rsv {rsv} opcode {opcode} fin {fin}": (frame(opcode, b"x", rsv=rsv, fin=fin), 1002)
        for rsv in (1, 2, 3, 5, 6, 7)
        for opcode in (CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG)
        for fin in (False, True)
    }


def _unmasked() -> dict[str, tuple[bytes, int]]:
    return {
        f"unmasked opcode {opcode} of {size}": (frame(opcode, bytes(size), key=None), 1002)
        for opcode in (TEXT, BINARY, CLOSE, PING, PONG)
        for size in (0, 5, 126, 65536)
        if opcode < CLOSE or size < 126
    }


def _control() -> dict[str, tuple[bytes, int]]:
    found = {}
    for opcode in (CLOSE, PING, PONG):
        for size in (126, 127, 1000, 65535, 65536, 100_000):
            found[f"control {opcode} of {size}"] = (frame(opcode, bytes(size)), 1002)
        for size in (0, 2, 125):
            fragment = frame(opcode, bytes(size), fin=False)
            found[f"control {opcode} of {size} in fragments"] = (fragment, 1002)
        packed = frame(opcode, deflated(b"hello"), rsv=4)
        found[f"control {opcode} compressed"] = (packed, 1002)
        found[f"control {opcode} in long form"] = (frame(opcode, b"hi", form=127), 1002)
    return found


def _lengths() -> dict[str, tuple[bytes, int]]:
    return {
        f"length {length:#x} opcode {opcode} with {sent} sent": (
            frame(opcode, b"PING\r\n"[:sent], form=127, length=length),
            1002,
        )
        for opcode in (TEXT, BINARY)
        for length in (1 << 63, (1 << 63) + 6, (1 << 64) - 1, (1 << 64) - 6, 0x8000_0000_0000_FFFF)
        for sent in (0, 6)
    }


def _sequences() -> dict[str, tuple[bytes, int]]:
    begun = frame(BINARY, b"PI", fin=False)
    return {
        "continuation of nothing": (frame(CONTINUATION, b"PING\r\n"), 1002),
        "unfinished continuation of nothing": (frame(CONTINUATION, b"PI", fin=False), 1002),
        "continuation after the end": (
            begun + frame(CONTINUATION, b"NG\r\n") + frame(CONTINUATION, b""),
            1002,
        ),
        "a message inside a message": (begun + frame(BINARY, b"NG\r\n"), 1002),
        "a text inside a message": (begun + frame(TEXT, b"NG\r\n"), 1002),
        "a message after a ping inside a message": (
            begun + frame(PING) + frame(BINARY, b"NG\r\n"),
            1002,
        ),
        "a compressed continuation": (begun + frame(CONTINUATION, b"NG\r\n", rsv=4), 1002),
    }


def _statuses() -> dict[str, tuple[bytes, int]]:
    wrong = [0, 1, 999, 1004, 1005, 1006, *range(1015, 1040), 1100, 1999, 2000, 2999, 5000, 65535]
    found = {
        f"close with {status}": (frame(CLOSE, status.to_bytes(2, "big") + text), 1002)
        for status in wrong
        for text in (b"", b"bye")
    }
    found["close of one byte"] = (frame(CLOSE, b"\x03"), 1002)
    for name, text in _NOT_UTF8.items():
        found[f"close with text {name}"] = (frame(CLOSE, b"\x03\xe8" + text), 1007)
        found[f"text {name}"] = (frame(TEXT, text), 1007)
        halves = frame(TEXT, text[:1], fin=False) + frame(CONTINUATION, text[1:])
        found[f"text {name} in fragments"] = (halves, 1007)
    return found


_NOT_UTF8 = {
    "lone continuation": b"\x80abc",
    "overlong": b"\xc0\xaf",
    "cut short": b"a\xe2\x82",
    "surrogate": b"\xed\xa0\x80",
    "beyond the last": b"\xf4\x90\x80\x80",
    "never a first byte": b"\xff\xff",
}


def _data() -> dict[str, tuple[bytes, int]]:
    garbage = {
        "reserved block": b"\x07" + bytes(10),
        "bad stored length": b"\x00\x05\x00\x00\x00hello",
        "bad distance": b"\x02\x02" + bytes(8),
        "goes on after its end": zlib.compress(b"PING\r\n")[2:-4] + b"more and more",
    }
    return {
        f"deflate {name}": (frame(BINARY, packed, rsv=4), 1007) for name, packed in garbage.items()
    }
