"""The configuration-file language of NATS servers: text in, a ``ConfBlock`` of plain values out.

Keys are separated from values by ``=``, ``:`` or blanks, values end at a newline, ``,`` or ``;``;
``#`` and ``//`` start comments; ``{}`` and ``[]`` nest; ``(…)`` is a block string; ``include``
reads another file; ``$NAME`` looks through the enclosing blocks and then the environment.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import TypeAlias

Value: TypeAlias = "str | int | float | bool | datetime | list[Value] | ConfBlock"

_INTEGER = re.compile(r"(-?\d+)([a-zA-Z]*)")
_UNITS = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
_DEEPEST = 64


class ConfError(Exception):
    """A mistake in a configuration file, with its place."""

    def __init__(self, message: str, file: str, line: int) -> None:
        super().__init__(f"{file}:{line}: {message}")
        self.message = message
        self.file = file
        self.line = line


class ConfBlock(dict[str, "Value"]):
    """A ``{…}`` block that remembers where each key was written."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, tuple[str, int]] = {}
        self.variables_used: set[str] = set()


def parse(
    text: str,
    file: str = "<config>",
    *,
    environment: Mapping[str, str] | None = None,
    read: Callable[[str], str] | None = None,
) -> ConfBlock:
    """Parse ``text``; ``read`` opens included files, given paths relative to ``file``'s folder."""
    top = ConfBlock()
    _ConfReader(text, file, [top], environment or {}, read, ()).block(top, closing="")
    return top


class _ConfReader:
    """Recursive descent over one file's text."""

    def __init__(
        self,
        text: str,
        file: str,
        scopes: list[ConfBlock],
        environment: Mapping[str, str],
        read: Callable[[str], str] | None,
        chain: tuple[str, ...],
    ) -> None:
        self._text = text
        self._file = file
        self._at = 0
        self._line = 1
        self._scopes = scopes
        self._environment = environment
        self._read = read
        self._chain = (*chain, file)

    # -- characters ------------------------------------------------------------------------

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self) -> str:
        char = self._peek()
        self._at += 1
        if char == "\n":
            self._line += 1
        return char

    def _fail(self, message: str, line: int | None = None) -> ConfError:
        return ConfError(message, self._file, line or self._line)

    def _skip(self, blanks: str) -> None:
        """Skip ``blanks`` and comments."""
        while True:
            char = self._peek()
            if char and char in blanks:
                self._take()
            elif char == "#" or self._text.startswith("//", self._at):
                while self._peek() not in ("", "\n"):
                    self._take()
            else:
                return

    # -- structure -------------------------------------------------------------------------

    def block(self, into: ConfBlock, closing: str) -> None:
        """Read ``key value`` pairs up to ``closing`` (the end of the text when empty)."""
        opened = self._line
        self._skip(" \t\r\n,;")
        wrapped = closing == "" and len(self._scopes) == 1 and self._peek() == "{"
        if wrapped:  # a whole file in braces is JSON's way to say the same
            self._take()
        while True:
            self._skip(" \t\r\n,;")
            char = self._peek()
            if char == "":
                if closing or wrapped:
                    raise self._fail("this block is never closed: add a '}'", opened)
                return
            if char == "}":
                if not (closing or wrapped):
                    raise self._fail("unexpected '}': no block is open here")
                self._take()
                if wrapped:
                    wrapped = False
                    continue
                return
            self._pair(into)

    def _pair(self, into: ConfBlock) -> None:
        line = self._line
        key, quoted = self._key()
        if not quoted and key.lower() == "include" and self._peek() in " \t":
            self._include(into)
            return
        self._skip(" \t\r\n")
        if self._peek() and self._peek() in "=:":
            self._take()
            self._skip(" \t\r\n")
        into[key] = self._value(f"key {key!r}")
        into.places[key] = (self._file, line)
        self._end_of_value(f"the value of {key!r}")

    def _key(self) -> tuple[str, bool]:
        char = self._peek()
        if char in "=:[](),":
            raise self._fail(f"unexpected {char!r} where a key should be")
        if char in "\"'":
            self._take()
            return self._quoted(char, escapes=False), True
        start = self._at
        while self._peek() and self._peek() not in " \t\r\n=:{":
            self._take()
        return self._text[start : self._at], False

    def _end_of_value(self, what: str) -> None:
        self._skip(" \t\r")
        char = self._peek()
        if char and char not in "\n,;}":
            raise self._fail(f"expected a new line, ',' or ';' after {what}, found {char!r}")

    def _include(self, into: ConfBlock) -> None:
        line = self._line
        self._skip(" \t")
        name = self._value("include")
        if not isinstance(name, str) or not name:
            raise self._fail("include needs a file name", line)
        path = str(PurePosixPath(self._file).parent / name)
        if self._read is None:
            raise self._fail("include is not possible here", line)
        if path in self._chain or len(self._chain) > _DEEPEST:
            raise self._fail(f"include of {name!r} includes itself", line)
        try:
            text = self._read(path)
        except OSError as error:
            raise self._fail(f"cannot read {name!r}: {error.strerror}", line) from error
        inner = _ConfReader(
            text, path, [*self._scopes, into], self._environment, self._read, self._chain
        )
        inner.block(into, closing="")
        self._end_of_value("include")

    # -- values ----------------------------------------------------------------------------

    def _value(self, what: str) -> Value:
        char = self._peek()
        if char == "{":
            return self._nested()
        if char == "[":
            return self._array()
        if char == "(":
            return self._block_string()
        if char and char in "\"'":
            self._take()
            return self._quoted(char, escapes=char == '"')
        if char == "" or char in ",;}]\n":
            raise self._fail(f"{what} has no value")
        return self._bare()

    def _nested(self) -> ConfBlock:
        self._take()
        if len(self._scopes) > _DEEPEST:
            raise self._fail(f"blocks nest deeper than {_DEEPEST}")
        made = ConfBlock()
        self._scopes.append(made)
        self.block(made, closing="}")
        self._scopes.pop()
        return made

    def _array(self) -> list[Value]:
        opened = self._line
        self._take()
        made: list[Value] = []
        while True:
            self._skip(" \t\r\n,;")
            if self._peek() == "":
                raise self._fail("this array is never closed: add a ']'", opened)
            if self._peek() == "]":
                self._take()
                return made
            made.append(self._value("this array"))
            self._skip(" \t\r")
            if self._peek() not in ("\n", ",", ";", "]"):
                raise self._fail("expected ',' or ']' between the values of an array")

    def _quoted(self, quote: str, *, escapes: bool) -> str:
        opened = self._line
        made: list[str] = []
        while True:
            char = self._take()
            if char == "":
                raise self._fail(f"this string is never closed: add a {quote}", opened)
            if char == quote:
                return "".join(made)
            made.append(self._escape() if escapes and char == "\\" else char)

    def _escape(self) -> str:
        char = self._take()
        if char == "x":
            digits = self._take() + self._take()
            try:
                return chr(int(digits, 16))
            except ValueError:
                raise self._fail(f"\\x needs two hexadecimal digits, found {digits!r}") from None
        if char not in _ESCAPES:
            raise self._fail(f'unknown escape \\{char}: use \\x \\t \\n \\r \\" or \\\\')
        return _ESCAPES[char]

    def _block_string(self) -> str:
        """A ``(`` string runs to the line that holds only ``)``."""
        opened = self._line
        self._take()
        end = re.compile(r"^[ \t]*\)[ \t\r]*$", re.MULTILINE).search(self._text, self._at)
        if end is None:
            raise self._fail("this block string is never closed: add a line with ')'", opened)
        made = self._text[self._at : end.start()]
        self._line += self._text.count("\n", self._at, end.end())
        self._at = end.end()
        return made

    def _bare(self) -> Value:
        start = self._at
        line = self._line
        while True:
            char = self._peek()
            if char == "" or char in " \t\r\n,;]}":
                break
            if char == "\\":
                self._take()
            self._take()
        word = self._text[start : self._at]
        if word.startswith("$"):
            return self._variable(word[1:], line)
        return self._plain(word, line)

    def _plain(self, word: str, line: int) -> Value:
        if word.lower() in _WORDS:
            return _WORDS[word.lower()]
        integer = _INTEGER.fullmatch(word)
        if integer is not None:
            sized = self._sized(integer[1], integer[2].lower())
            if sized is not None:
                if not -(2**63) <= sized < 2**63:
                    raise self._fail(f"{word} is out of range", line)
                return sized
        if re.fullmatch(r"-?\d+\.\d+", word):
            return float(word)
        if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", word):
            try:
                return datetime.strptime(word, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
            except ValueError:
                raise self._fail(f"{word!r} is no date", line) from None
        return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), word)

    @staticmethod
    def _sized(digits: str, unit: str) -> int | None:
        if unit == "":
            return int(digits)
        power = _UNITS.get(unit[0])
        if power is None or unit[1:] not in ("", "b", "i", "ib"):
            return None
        step: int = (1000 if len(unit) == 1 else 1024) ** power
        return int(digits) * step

    def _variable(self, name: str, line: int) -> Value:
        if name.startswith("2a$"):  # a bcrypt hash, not a variable
            return "$" + name
        for scope in reversed(self._scopes):
            if name in scope:
                scope.variables_used.add(name)
                return scope[name]
        if name not in self._environment:
            raise self._fail(
                f"variable ${name} is not set: define {name} above or in the environment", line
            )
        if f"${name}" in self._chain:
            raise self._fail(f"variable ${name} refers to itself", line)
        inner = _ConfReader(
            self._environment[name],
            f"${name}",
            self._scopes,
            self._environment,
            None,
            self._chain,
        )
        inner._skip(" \t\r\n")
        return inner._value(f"variable ${name}")
