"""JSON at the NATS door, read into what a request may say as Go's encoding/json reads it.

A ``Shape`` lists the fields of a request by their names and Go's types. Null is absent, the case
of a key does not count, the last of doubled keys does (objects and maps are merged), and what
does not fit is refused in Go's words. ``unmarshal`` takes exactly one value, ``read_request`` is
what the reference does with the requests of its API.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from millstream.wire import go_syntax
from millstream.wire.go_syntax import (
    Escaped,
    GoSyntaxError,
    Number,
    Pairs,
    Truncated,
    quoted,
)
from millstream.wire.go_times import BadTime, canonical

ABSENT: Final[Any] = None  # what null and silence come to

_WHOLE = re.compile(r"-?[0-9]{1,20}")
_FOLDED = {0x17F: "s", 0x212A: "k"}  # the only other letters that Go takes for ASCII ones


class GoJsonError(ValueError):
    """A text that Go would not read; the words are Go's."""


class _WantsText(Exception):
    """The text of a value is needed, and not at hand."""


class Reading:
    """One value on its way: where it is, and the first thing that did not fit."""

    def __init__(self, shape: "Shape", data: bytes, *, strict: bool, has_spans: bool) -> None:
        self.error = ""
        self.path: list[str] = []
        self.is_strict = strict
        self._root = shape.root
        self._data = data
        self._has_spans = has_spans

    def refuse(self, why: str) -> None:
        """Note what does not fit; the first counts, and reading goes on."""
        if not self.error:
            self.error = why

    def mismatch(self, given: Any, kind: "GoType", number: str = "") -> None:
        """Note a value of the wrong type."""
        value = f"number {number}" if number else _name_of(given)
        into = f"Go value of type {kind.go}"
        if self.path:
            path = ".".join(one.replace("~", "~0").replace("/", "~1") for one in self.path)
            path = path.replace("/", ".")
            last = path.rpartition(".")[2]
            field = "" if last and not last.strip("0123456789") else "Go struct field "
            into = f"{field}{self._root}.{path} of type {kind.go}"
        self.refuse(f"json: cannot unmarshal {value} into {into}")

    def text_of(self, given: Any) -> bytes:
        """Return a value as it was written."""
        match given:
            case list() | Escaped():
                if not self._has_spans:
                    raise _WantsText
                start, end = given.span  # type: ignore[union-attr]
                return self._data[start:end]
            case Number():
                return given.encode()
            case str():
                return b'"%b"' % given.encode()
            case _:
                return {None: b"null", True: b"true", False: b"false"}[given]


def _name_of(given: Any) -> str:
    match given:
        case Number():
            return "number"
        case str():
            return "string"
        case bool():
            return "bool"
        case Pairs():
            return "object"
        case _:
            return "array"


class GoType:
    """What a field may hold. ``go`` is Go's name of the type."""

    def __init__(self, go: str) -> None:
        self.go = go

    @property
    def zero(self) -> Any:
        """What an element is that says nothing."""
        return ABSENT

    def read(self, given: Any, before: Any, reading: Reading) -> Any:
        """Return the value that comes of this and the one before it under the same name."""
        raise NotImplementedError


class Text(GoType):
    """A string."""

    zero = ""

    def read(self, given: Any, before: Any, reading: Reading) -> Any:
        """Take a string."""
        if type(given) is str:
            return given
        if isinstance(given, str) and not isinstance(given, Number):
            return str(given)
        if given is not None:
            reading.mismatch(given, self)
        return before


class Flag(GoType):
    """True or false."""

    zero = False

    def read(self, given: Any, before: Any, reading: Reading) -> Any:
        """Take true or false."""
        if isinstance(given, bool):
            return given
        if given is not None:
            reading.mismatch(given, self)
        return before


class Whole(GoType):
    """An integer of so many bits, written without point and exponent."""

    zero = 0

    def __init__(self, go: str, allowed: range) -> None:
        super().__init__(go)
        self.allowed = allowed

    def read(self, given: Any, before: Any, reading: Reading) -> Any:
        """Take a number without point and exponent that has room."""
        if isinstance(given, Number):
            if _WHOLE.fullmatch(given) and int(given) in self.allowed:
                if self.allowed.start == 0 and given == "-0":  # which Go does not take for unsigned
                    reading.mismatch(given, self, given)
                    return before
                return int(given)
            reading.mismatch(given, self, given)
        elif given is not None:
            reading.mismatch(given, self)
        return before


class Decimal(GoType):
    """A number with a fraction, perhaps."""

    zero = 0.0

    def read(self, given: Any, before: Any, reading: Reading) -> Any:
        """Take any number that a float has room for."""
        if isinstance(given, Number):
            value = float(given)
            if abs(value) != float("inf"):
                return value
            reading.mismatch(given, self, given)
        elif given is not None:
            reading.mismatch(given, self)
        return before


class GoTime(GoType):
    """A time, kept as text in the form that Go writes; null takes it back where Go points to it."""

    zero = "0001-01-01T00:00:00Z"

    def __init__(self, *, pointer: bool = True) -> None:
        super().__init__("time.Time")
        self._is_pointer = pointer

    def read(self, given: Any, before: Any, reading: Reading) -> Any:
        """Take a time."""
        if given is None:
            return ABSENT if self._is_pointer else before
        if not isinstance(given, str) or isinstance(given, Number):
            reading.mismatch(given, self)
            return before
        try:
            return canonical(given)
        except BadTime as error:
            reading.refuse(str(error))
            return before


class Word(GoType):
    """One of a few words, judged by its text: even null and escapes are compared as written."""

    def __init__(self, words: Mapping[str, str], refusal: str, *, any_case: bool = False) -> None:
        super().__init__("")
        self.words = words
        self._refusal = refusal
        self._any_case = any_case

    def read(self, given: Any, before: Any, reading: Reading) -> Any:
        """Take one of the words."""
        if type(given) is str and given in self.words:
            return self.words[given]
        text = reading.text_of(given).decode("utf-8", "surrogateescape")
        key = text.lower() if self._any_case else text
        if key[:1] == '"' and key[1:-1] in self.words:
            return self.words[key[1:-1]]
        shown = text.encode("utf-8", "surrogateescape").decode("utf-8", "millstream-go")
        reading.refuse(self._refusal % (quoted(text) if "unmarshal" in self._refusal else shown))
        return before


class Algorithm(GoType):
    """One of a few words that Go reads as a string first."""

    def __init__(self, words: tuple[str, ...], refusal: str) -> None:
        super().__init__("string")
        self.words = words
        self._refusal = refusal

    def read(self, given: Any, before: Any, reading: Reading) -> Any:
        """Take one of the words."""
        if given is not None and (not isinstance(given, str) or isinstance(given, Number)):
            reading.refuse(f"json: cannot unmarshal {_name_of(given)} into Go value of type string")
        elif given in self.words:
            return str(given)
        else:
            reading.refuse(self._refusal)
        return before


class _Slots(list[Any]):
    """An array that was read; ``behind`` is what its places held before they were given up."""

    __slots__ = ("behind",)
    behind: list[Any]


class Listing(GoType):
    """An array of values of one kind.

    Somebody refuses one with more than ``most`` values: it is read no further, so that a request
    which is refused anyway does not keep the loop, but has as many values as were given.
    """

    def __init__(self, of: GoType, go: str = "", most: int = 0) -> None:
        super().__init__(f"[]{go or of.go}")
        self.of = of
        self._most = most

    def read(self, given: Any, before: Any, reading: Reading) -> Any:
        """Take an array, element by element."""
        if given is None:
            return ABSENT
        if not isinstance(given, list) or isinstance(given, Pairs):
            reading.mismatch(given, self)
            return before
        # Go reads into the places of the array before, which a null leaves as they were.
        places = list(before.behind) if isinstance(before, _Slots) and given else []
        read = given[: self._most + 1] if self._most else given
        for at, one in enumerate(read):
            reading.path.append(str(at))
            old = places[at] if at < len(places) else self.of.zero
            places[at : at + 1] = [self.of.read(one, old, reading)]
            reading.path.pop()
        places += places[-1:] * (len(given) - len(places))
        made = _Slots(places[: len(given)])
        made.behind = places
        return made


class Table(GoType):
    """Values of one kind under any names."""

    def __init__(self, of: GoType) -> None:
        super().__init__(f"map[string]{of.go}")
        self.of = of

    def read(self, given: Any, before: Any, reading: Reading) -> Any:
        """Take an object, and add it to the one before."""
        if given is None:
            return ABSENT
        if not isinstance(given, Pairs):
            reading.mismatch(given, self)
            return before
        made = {} if before is ABSENT else dict(before)
        for key, value in given:
            reading.path.append(key)
            made[key] = self.of.read(value, self.of.zero, reading)
            reading.path.pop()
        return made


class Anything(GoType):
    """Any value, as plain Python has it."""

    def __init__(self) -> None:
        super().__init__("interface {}")

    def read(self, given: Any, before: Any, reading: Reading) -> Any:
        """Take whatever it is."""
        return plain(given)


def plain(given: Any) -> Any:
    """Return a value as plain Python has it; the last of doubled keys counts."""
    match given:
        case Number():
            return int(given) if _WHOLE.fullmatch(given) else float(given)
        case str():
            return str(given)
        case Pairs():
            return {key: plain(value) for key, value in given}
        case list():
            return [plain(one) for one in given]
        case _:
            return given


class Shape(GoType):
    """The fields of an object. ``root`` is what Go calls it where it is the whole request.

    ``pointer``: null takes back what was said before; else it changes nothing.
    """

    def __init__(
        self,
        name: str,
        fields: Mapping[str, GoType],
        *,
        root: str | None = None,
        pointer: bool = False,
    ) -> None:
        super().__init__(f"server.{name}")
        self.root = name if root is None else root
        self.fields = fields
        self._is_pointer = pointer
        self._folded = {_fold(key): key for key in fields}

    @property
    def zero(self) -> Any:
        """What an element is that says nothing."""
        return ABSENT if self._is_pointer else {}

    def read(self, given: Any, before: Any, reading: Reading) -> Any:
        """Take an object, and add it to the one before."""
        if given is None:
            return ABSENT if self._is_pointer else before
        if not isinstance(given, Pairs):
            reading.mismatch(given, self)
            return before
        made = {} if before is ABSENT else dict(before)
        self.fill(given, made, reading)
        return made

    def fill(self, given: Pairs, made: dict[str, Any], reading: Reading) -> None:
        """Read pairs into an object that may hold something already."""
        for key, value in given:
            name = key if key in self.fields else self._folded.get(_fold(key))
            if name is None:
                if reading.is_strict:
                    reading.refuse(f"json: unknown field {quoted(key)}")
                continue
            reading.path.append(key)
            read = self.fields[name].read(value, made.get(name), reading)
            reading.path.pop()
            if read is ABSENT:
                made.pop(name, None)
            else:
                made[name] = read


def _fold(key: str) -> str:
    return key.lower() if key.isascii() else key.translate(_FOLDED).lower()


STRING, BOOL, FLOAT64 = Text("string"), Flag("bool"), Decimal("float64")
INT, INT64 = Whole("int", range(-(2**63), 2**63)), Whole("int64", range(-(2**63), 2**63))
INT32, UINT64 = Whole("int32", range(-(2**31), 2**31)), Whole("uint64", range(2**64))
DURATION = Whole("time.Duration", INT64.allowed)
STRINGS, ANYTHING = Listing(STRING), Anything()


def unmarshal(data: bytes, shape: Shape, onto: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what a text says, or says beside ``onto``; raises GoJsonError."""
    try:
        value, has_spans = go_syntax.parse_plainly(data), False
    except ValueError:
        value, has_spans = _parse_all(data), True
    made = {} if onto is None else dict(onto)
    try:
        _read_into(made, value, shape, data, strict=False, has_spans=has_spans)
    except _WantsText:
        made = {} if onto is None else dict(onto)
        _read_into(made, _parse_all(data), shape, data, strict=False, has_spans=True)
    return made


def _parse_all(data: bytes) -> Any:
    try:
        value, end = go_syntax.parse(data, 0)
        end = go_syntax.skip_space(data, end)
        if end < len(data):
            raise go_syntax.stray(data, end, "after top-level value")
    except GoSyntaxError as error:
        raise GoJsonError(str(error)) from error
    return value


def read_request(data: bytes, shape: Shape, *, strict: bool = True) -> dict[str, Any]:
    """Return what the values of a text say one after another; raises GoJsonError.

    Unknown fields are refused, unless told not to be. No text at all says nothing.
    """
    made: dict[str, Any] = {}
    try:
        _read_values(made, data, shape)
    except GoJsonError:
        if strict:
            raise
        return unmarshal(data, shape, made)
    return made


def _read_values(made: dict[str, Any], data: bytes, shape: Shape) -> None:
    try:
        value = go_syntax.parse_plainly(data)
        _read_into(made, value, shape, data, strict=True, has_spans=False)
    except (_WantsText, ValueError) as error:
        if isinstance(error, GoJsonError):
            raise
    else:
        return
    made.clear()
    at = go_syntax.skip_space(data, 0)
    while at < len(data):
        try:
            value, at = go_syntax.parse(data, at)
        except Truncated as error:
            raise GoJsonError("unexpected EOF") from error
        except GoSyntaxError as error:
            raise GoJsonError(f"{error} at offset {error.offset}") from error
        _read_into(made, value, shape, data, strict=True, has_spans=True)
        at = go_syntax.skip_space(data, at)


def _read_into(
    made: dict[str, Any], value: Any, shape: Shape, data: bytes, *, strict: bool, has_spans: bool
) -> None:
    reading = Reading(shape, data, strict=strict, has_spans=has_spans)
    if isinstance(value, Pairs):
        try:
            shape.fill(value, made, reading)
        except RecursionError as error:
            raise GoJsonError("exceeded max depth") from error
    elif value is not None:
        reading.mismatch(value, shape)
    if reading.error:
        raise GoJsonError(reading.error)


def words(*known: str, refusal: str = "can not unmarshal %s") -> Word:
    """Return the kind of a field that is one of a few words."""
    return Word({word: word for word in known}, refusal)
