"""JSON text as Go's encoding/json takes it apart, and its words for what is no JSON.

Strings are ``str`` (invalid bytes and lone surrogates are U+FFFD), numbers keep their literal
(``Number``), objects keep every pair in order (``Pairs``): doubled keys are for the reader to
judge. Depth costs no stack, so that ten thousand brackets are read as easily as two.
"""

import codecs
import json
import re
from typing import Any

MOST_DEPTH = 10_000

_SPACE = re.compile(rb"[ \t\r\n]*")
_INSIDE = re.compile(rb'(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+')
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_DIGITS_MISSING = re.compile(rb"-|(?:\.|[eE][+-]?)(?![0-9])")
_ESCAPE = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))"
)
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LITERALS: dict[int, tuple[bytes, Any]] = {
    ord("n"): (b"null", None),
    ord("t"): (b"true", True),
    ord("f"): (b"false", False),
}


def _one_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd", error.start + 1


codecs.register_error("millstream-go", _one_byte)  # Go replaces each byte, Python each sequence


class GoSyntaxError(ValueError):
    """What is no JSON; ``offset`` counts the bytes that were read up to and with the culprit."""

    def __init__(self, text: str, offset: int) -> None:
        super().__init__(text)
        self.offset = offset


class Truncated(GoSyntaxError):
    """The text ends within a value."""

    def __init__(self, offset: int) -> None:
        super().__init__("unexpected end of JSON input", offset)


class Number(str):
    """A number as it was written."""

    __slots__ = ()


class Pairs(list[tuple[str, Any]]):
    """An object as it was written; ``span`` is where, unless the text is not at hand."""

    __slots__ = ("span",)
    span: tuple[int, int]


class Items(list[Any]):
    """An array as it was written."""

    __slots__ = ("span",)
    span: tuple[int, int]


class Escaped(str):
    """A string that was written with escapes or invalid bytes."""

    __slots__ = ("span",)
    span: tuple[int, int]


def _no_constant(text: str) -> Any:
    raise ValueError(text)


_plain = json.JSONDecoder(
    object_pairs_hook=Pairs, parse_int=Number, parse_float=Number, parse_constant=_no_constant
)


def parse_plainly(data: bytes) -> Any:
    """Return the one value of a text without oddities, in little time; raises ValueError.

    Objects and arrays have no span. What this refuses ``parse`` may still take.
    """
    if b"\\" in data:
        raise ValueError("a text with escapes is taken apart in full")
    text = data.decode()
    try:
        if text[:1] == "{":  # most requests: nothing before it, and nothing behind it
            value, end = _plain.raw_decode(text)
            if end == len(text):
                return value
        return _plain.decode(text)
    except RecursionError as error:
        raise ValueError("too deep for this") from error


def skip_space(data: bytes, at: int) -> int:
    """Return where the white space that begins here ends."""
    return _SPACE.match(data, at).end()  # type: ignore[union-attr]


def parse(data: bytes, at: int) -> tuple[Any, int]:
    """Return the value that begins here and where it ends; raises GoSyntaxError."""
    open_ones: list[tuple[int, Pairs | Items, str]] = []  # where, what, and the key it is under
    key = ""
    at = skip_space(data, at)
    while True:
        value: Any
        start = at
        byte = data[at] if at < len(data) else -1
        if byte in (ord("{"), ord("[")):
            if len(open_ones) == MOST_DEPTH:
                raise GoSyntaxError("exceeded max depth", at + 1)
            value = Pairs() if byte == ord("{") else Items()
            at = skip_space(data, at + 1)
            if at < len(data) and data[at] == byte + 2:  # } and ] stand two behind { and [
                at += 1
                value.span = (start, at)
            else:
                open_ones.append((start, value, key))
                if byte == ord("{"):
                    key, at = _key(data, at)
                continue
        else:
            value, at = _scalar(data, at)
        while open_ones:  # hand the value to what holds it, and that to what holds it in turn
            start, holder, outer = open_ones[-1]
            is_object = isinstance(holder, Pairs)
            holder.append((key, value) if is_object else value)
            at = skip_space(data, at)
            if at >= len(data):
                raise Truncated(at)
            if data[at] == ord(","):
                at = skip_space(data, at + 1)
                if is_object:
                    key, at = _key(data, at)
                break
            if data[at] != ord("}" if is_object else "]"):
                place = "after object key:value pair" if is_object else "after array element"
                raise stray(data, at, place)
            at += 1
            holder.span = (start, at)
            value, key = holder, outer
            open_ones.pop()
        else:
            return value, at


def _key(data: bytes, at: int) -> tuple[str, int]:
    """Read a key, and up to the value behind its colon."""
    if at >= len(data):
        raise Truncated(at)
    if data[at] != ord('"'):
        raise stray(data, at, "looking for beginning of object key string")
    key, at = _string(data, at)
    at = skip_space(data, at)
    if at >= len(data):
        raise Truncated(at)
    if data[at] != ord(":"):
        raise stray(data, at, "after object key")
    return str(key), skip_space(data, at + 1)


def _scalar(data: bytes, at: int) -> tuple[Any, int]:
    if at >= len(data):
        raise Truncated(at)
    byte = data[at]
    if byte == ord('"'):
        return _string(data, at)
    if byte in b"-0123456789":
        return _number(data, at)
    if byte in _LITERALS:
        word, value = _LITERALS[byte]
        for past, expected in enumerate(word):
            if at + past >= len(data):
                raise Truncated(at + past)
            if data[at + past] != expected:
                place = f"in literal {word.decode()} (expecting '{chr(expected)}')"
                raise stray(data, at + past, place)
        return value, at + len(word)
    raise stray(data, at, "looking for beginning of value")


def _number(data: bytes, at: int) -> tuple[Number, int]:
    found = _NUMBER.match(data, at)
    end = found.end() if found is not None else at
    missing = _DIGITS_MISSING.match(data, end)  # a sign, point or exponent without its digits
    if missing is None:
        return Number(data[at:end].decode()), end
    if missing.end() >= len(data):
        raise Truncated(len(data))
    raise stray(data, missing.end(), "in numeric literal")


def _string(data: bytes, at: int) -> tuple[str, int]:
    end = _INSIDE.match(data, at + 1).end()  # type: ignore[union-attr]
    if end >= len(data):
        raise Truncated(end)
    if data[end] != ord('"'):
        raise _bad_string(data, end)
    inside = data[at + 1 : end]
    text = inside.decode("utf-8", "millstream-go")
    if b"\\" not in inside and "\ufffd" not in text:
        return text, end + 1
    escaped = Escaped(_ESCAPE.sub(_unescaped, text))
    escaped.span = (at, end + 1)
    return escaped, end + 1


def _unescaped(found: re.Match[str]) -> str:
    high, low, one, short = found.groups()
    if high is not None:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    if one is not None:
        code = int(one, 16)
        return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)
    return _SHORT.get(short, short)


def _bad_string(data: bytes, at: int) -> GoSyntaxError:
    """Say why a string goes no further than here."""
    if data[at] != ord("\\"):
        return stray(data, at, "in string")
    long = 6 if data[at + 1 : at + 2] == b"u" else 2
    what = data[at : at + long]
    if len(what) < long and re.fullmatch(rb"\\(?:u[0-9a-fA-F]*)?", what):
        return Truncated(len(data))
    return GoSyntaxError(f"invalid escape sequence {_shown(what)} in string", at + len(what))


def stray(data: bytes, at: int, place: str) -> GoSyntaxError:
    """Say which character stands where none of its kind may."""
    what = _first_character(data, at)
    return GoSyntaxError(f"invalid character {_shown(what)} {place}", at + len(what))


def _first_character(data: bytes, at: int) -> bytes:
    for size in range(1, 5):
        try:
            data[at : at + size].decode()
        except UnicodeDecodeError:
            continue
        return data[at : at + size]
    return data[at : at + 1]


def _shown(what: bytes) -> str:
    text = what.decode("utf-8", "surrogateescape")
    if len(text) == 1:
        if not text.isprintable() and what[0] >= 0x80 and len(what) == 1:
            return f"'\\x{what[0]:x}'"
        return quoted(what, "'")
    if any(c in "`\ufffd" or c.isspace() or not c.isprintable() for c in text):
        return quoted(what)
    return f"`{text}`"


_NAMED = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_NAMED |= {"\v": "\\v", "\\": "\\\\"}


def quoted(what: bytes | str, mark: str = '"') -> str:
    """Return a text as Go quotes it."""
    text = what if isinstance(what, str) else what.decode("utf-8", "surrogateescape")
    return mark + "".join(_quoted_one(c, mark) for c in text) + mark


def _quoted_one(c: str, mark: str) -> str:
    code = ord(c)
    if c == mark:
        return "\\" + c
    if c in _NAMED:
        return _NAMED[c]
    if c.isprintable():
        return c
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no text
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
