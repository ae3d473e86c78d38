"""Setting: one key of a configuration file, read as the type that it must have.

A block is read by a table: key → where the value goes and how it is read. Every mistake is kept
with its place, so that one run tells them all.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeAlias

import msgspec

from millstream.server.conf.durations import parse_duration
from millstream.server.conf.syntax import ConfBlock, ConfError, Value
from millstream.server.options.config_error import ConfigError

Values: TypeAlias = dict[str, Any]

_SIZE = re.compile(r"([+-]?\d+)([KMGT])")
_DURATION = "a duration in quotes, like '10s', '2m' or '1h30m'"
_SHIFTS = {"K": 10, "M": 20, "G": 30, "T": 40}


class BadConfiguration(ConfigError):
    """A file that cannot be served from, with everything that is wrong with it."""

    def __init__(self, problems: list[ConfError]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class ConfFindings(msgspec.Struct):
    """What reading a file found: mistakes, doubtful spellings, and what has no effect here."""

    problems: list[ConfError] = msgspec.field(default_factory=list)
    warnings: list[ConfError] = msgspec.field(default_factory=list)
    notes: list[ConfError] = msgspec.field(default_factory=list)


class Setting(msgspec.Struct, frozen=True):
    """A value, the key it was written under, and the place."""

    key: str
    value: Value
    file: str
    line: int
    findings: ConfFindings

    def wrong(self, reason: str) -> ConfError:
        """Return the mistake of this setting."""
        return ConfError(f"'{self.key}' {reason}", self.file, self.line)

    def warn(self, reason: str) -> None:
        """Tell about a spelling that is taken, but better avoided."""
        self.findings.warnings.append(self.wrong(reason))

    def note(self, reason: str) -> None:
        """Tell about a setting that has no effect here."""
        self.findings.notes.append(self.wrong(reason))

    def report(self, reason: str) -> None:
        """Tell about a mistake and go on reading."""
        self.findings.problems.append(self.wrong(reason))

    def _expected(self, what: str) -> NoReturn:
        raise self.wrong(f"must be {what}, not {_shown(self.value)}")

    def text(self) -> str:
        """Return a string."""
        if not isinstance(self.value, str):
            self._expected("a string: put it in quotes")
        return self.value

    def word(self) -> str:
        """Return a string without spaces."""
        text = self.text()
        if " " in text:
            raise self.wrong("must not contain spaces")
        return text

    def integer(self) -> int:
        """Return a whole number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            self._expected("a whole number, without quotes")
        return self.value

    def small(self) -> int:
        """Return a whole number that fits 32 bits."""
        number = self.integer()
        if number > 2**31 - 1:
            raise self.wrong(f"is too big: at most {2**31 - 1}, not {number}")
        return number

    def switch(self) -> bool:
        """Return true or false."""
        if not isinstance(self.value, bool):
            self._expected("true or false")
        return self.value

    def duration(self) -> float:
        """Return the seconds of a duration in quotes."""
        if not isinstance(self.value, str):
            self._expected(_DURATION)
        try:
            return parse_duration(self.value)
        except ValueError:
            self._expected(_DURATION)

    def duration_or_seconds(self) -> float:
        """Return seconds; a bare number means seconds too, but is better written as a duration."""
        if isinstance(self.value, str):
            return self.duration()
        seconds = self.integer()
        self.warn(f"should be a duration: write '{seconds}s'")
        return float(seconds)

    def timeout(self) -> float:
        """Return seconds, given as a number or as a duration."""
        if isinstance(self.value, int | float) and not isinstance(self.value, bool):
            return float(self.value)
        if isinstance(self.value, str):
            return self.duration()
        self._expected("seconds or a duration like '2s'")

    def size(self) -> int:
        """Return bytes, given as a number or as a string that ends in K, M, G or T."""
        if not isinstance(self.value, str):
            return self.integer()
        if not self.value:
            return 0
        written = _SIZE.fullmatch(self.value)
        if written is None:
            self._expected("a size like 512M or 2G")
        return int(written[1]) << _SHIFTS[written[2]]

    def block(self) -> ConfBlock:
        """Return a ``{…}`` block."""
        if not isinstance(self.value, ConfBlock):
            self._expected("a block: { … }")
        return self.value

    def elements(self) -> list["Setting"]:
        """Return the elements of an array, each as a setting at its own place."""
        if not isinstance(self.value, list):
            self._expected("an array: [ … ]")
        return [self._element(value) for value in self.value]

    def _element(self, value: Value) -> "Setting":
        file, line = self.file, self.line
        if isinstance(value, ConfBlock) and value.places:
            file, line = next(iter(value.places.values()))
        return Setting(self.key, value, file, line, self.findings)

    def texts(self) -> tuple[str, ...]:
        """Return an array of strings; a lone string counts as one."""
        if isinstance(self.value, str):
            return (self.value,)
        if not isinstance(self.value, list):
            self._expected("a string or an array of strings")
        return tuple(element.text() for element in self.elements())

    def text_pairs(self) -> tuple[tuple[str, str], ...]:
        """Return a block whose values are all strings."""
        return tuple((inner.key, inner.text()) for inner in self.inner())

    def inner(self) -> Iterator["Setting"]:
        """Go through the settings of a block, without those that are only variables."""
        yield from settings(self.block(), self.findings)

    def listen(self) -> tuple[str, int]:
        """Return host and port of ``4222``, ``host:4222`` or ``[::1]:4222``."""
        if isinstance(self.value, int) and not isinstance(self.value, bool):
            return "", self.value
        host, colon, port = self.text().rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            colon = ""
        try:
            return host, int(port) if colon else int("")
        except ValueError:
            self._expected("a port or host:port")


Reader: TypeAlias = Callable[[Setting], object]
# A key goes to a field, or, where the field is empty, its reader returns several values by field.
Table: TypeAlias = Mapping[str, tuple[str, Reader]]


def settings(block: ConfBlock, findings: ConfFindings) -> Iterator[Setting]:
    """Go through the keys of a block in the order they were written."""
    for key, value in block.items():
        file, line = block.places.get(key, ("<config>", 0))
        if key not in block.variables_used:
            yield Setting(key, value, file, line, findings)


def read(block: ConfBlock, table: Table, findings: ConfFindings) -> Values:
    """Return the values of a block by field; mistakes go to ``findings``."""
    values: Values = {}
    for key, value in block.items():
        file, line = block.places.get(key, ("<config>", 0))
        setting = Setting(key, value, file, line, findings)
        if key.lower() in table:
            _take(setting, table[key.lower()], values)
        elif key not in block.variables_used:
            setting.report(f"is not a known setting{_near(key, table)}")
    return values


def _take(setting: Setting, place: tuple[str, Reader], values: Values) -> None:
    name, reader = place
    try:
        made = reader(setting)
    except ConfError as error:
        setting.findings.problems.append(error)
        return
    if name:
        values[name] = made
    elif isinstance(made, dict):
        values.update(made)


def _near(key: str, table: Table) -> str:
    near = difflib.get_close_matches(key.lower(), table, n=5)
    # Swapped letters are the likeliest slip.
    near.sort(key=lambda name: sorted(name) != sorted(key.lower()))
    return f": did you mean '{near[0]}'?" if near else ": remove it, or check its spelling"


def _shown(value: Value) -> str:
    if isinstance(value, ConfBlock):
        return "a block"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"the string {value!r}" if isinstance(value, str) else str(value)


def unsupported(what: str) -> Reader:
    """Return a reader that refuses a setting for a thing we do not have."""

    def refuse(setting: Setting) -> NoReturn:
        raise setting.wrong(f"is not supported: {what}")

    return refuse


def ignored(reader: Reader, why: str) -> Reader:
    """Return a reader that checks a setting and tells why it changes nothing."""

    def check(setting: Setting) -> None:
        reader(setting)
        setting.note(f"has no effect: {why}")

    return check


def only_shown(reader: Reader, why: str) -> Reader:
    """Return a reader of a setting that monitoring shows, and that tells why it limits nothing."""

    def show(setting: Setting) -> object:
        setting.note(f"is shown and has no effect: {why}")
        return reader(setting)

    return show
