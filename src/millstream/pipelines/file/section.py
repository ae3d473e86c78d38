"""One mapping of a pipeline file, read key by key; what nobody asked for is a mistake."""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

from millstream.pipelines.file.document import Document, Key, near
from millstream.pipelines.file.spans import seconds

_INTERVAL = re.compile(
    r"\s*\d+(\.\d+)?\s*(ms|s|m|h|d|milliseconds?|seconds?|minutes?|hours?|days?)\s*"
)
_SHORT = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_Word = TypeVar("_Word", bound=StrEnum)


class Section:
    """Takes values out of a mapping, each with its type; ``done`` says what was left."""

    def __init__(self, document: Document, key: Key, value: object) -> None:
        self.document = document
        self.key = key
        if not isinstance(value, dict):
            document.fail(key, f"must be a mapping of keys to values, not {_kind(value)}")
        self._values: dict[str, Any] = {str(name): given for name, given in value.items()}
        self._asked: dict[str, None] = {}

    def __contains__(self, name: str) -> bool:
        self._asked[name] = None
        return name in self._values

    def fail(self, text: str, name: str = "") -> NoReturn:
        """Raise a problem of this section, or of one of its keys."""
        self.document.fail((*self.key, name) if name else self.key, text)

    def take(self, name: str) -> Any:
        """Return a value as it is, None when it is absent."""
        self._asked[name] = None
        return self._values.get(name)

    def text(self, name: str) -> str:
        """Return text that must be there."""
        found = self.optional(name)
        if found is None:
            self.missing(name)
        return found

    def optional(self, name: str) -> str | None:
        """Return text that may be absent."""
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, dict | list) or not str(value).strip():
            self.fail(f"must be text, not {_kind(value)}", name)
        return _plain(value)

    def truth(self, name: str) -> bool:
        """Return true or false; absent means false."""
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            self.fail(f"must be true or false, not {value!r}", name)
        return bool(value)

    def names(self, name: str) -> tuple[str, ...]:
        """Return a list of texts; one text is a list of one, absent is none."""
        value = self.take(name)
        if value is None:
            return ()
        items = value if isinstance(value, list) else [value]
        for at, item in enumerate(items):
            if not isinstance(item, str) or not item.strip():
                self.document.fail((*self.key, name, at), f"must be a name, not {_kind(item)}")
        return tuple(items)

    def texts(self, name: str) -> dict[str, str]:
        """Return a mapping of texts; absent is empty."""
        value = self.take(name)
        if value is None:
            return {}
        below = Section(self.document, (*self.key, name), value)
        return {key: below.text(key) for key in below._values}

    def choice(self, name: str, words: type[_Word], otherwise: _Word) -> _Word:
        """Return one of the words of an enumeration."""
        given = self.optional(name)
        if given is None:
            return otherwise
        try:
            return words(given)
        except ValueError:
            self.fail(f"must be one of {', '.join(words)}, not {given!r}", name)

    def interval(self, name: str) -> str | None:
        """Return a time span as Spark spells it: ``30s`` is ``30 seconds``."""
        given = self.optional(name)
        if given is None:
            return None
        if not _INTERVAL.fullmatch(given):
            self.fail(f"must be a time span such as 30s, 10m or '1 hour', not {given!r}", name)
        number, unit = re.fullmatch(r"([\d.]+)\s*(\w+)", given.strip()).groups()  # type: ignore[union-attr]
        span = f"{number} {_SHORT.get(unit, unit)}"
        # Spark takes no parts of minutes, hours or days.
        return f"{round(seconds(span) * 1000)} milliseconds" if "." in number else span

    def section(self, name: str) -> "Section | None":
        """Return a mapping below, None when it is absent."""
        value = self.take(name)
        return None if value is None else Section(self.document, (*self.key, name), value)

    def sections(self, name: str) -> Iterator["Section"]:
        """Return the mappings of a list."""
        value = self.take(name)
        if value is not None and not isinstance(value, list):
            self.fail(f"must be a list, each item beginning with '-', not {_kind(value)}", name)
        for at, item in enumerate(value or []):
            yield Section(self.document, (*self.key, name, at), item)

    def named(self, name: str) -> Iterator[tuple[str, "Section"]]:
        """Return the mappings of a mapping by their names."""
        below = self.section(name)
        for key in below._values if below else ():
            assert below is not None
            found = below.section(key)
            if found is None:
                below.fail("is empty", key)
            yield key, found

    def one_of(self, *names: str) -> str:
        """Return which of these keys there is; exactly one must be."""
        found = [name for name in names if name in self]
        if len(found) != 1:
            for given in self._values if not found else ():
                if given not in self._asked and difflib.get_close_matches(given, names, n=1):
                    self.fail(f"unknown key; {near(given, names)}", given)
            words = ", ".join(names)
            self.fail(f"must have one of {words}" + (f", not {found}" if found else ""))
        return found[0]

    def missing(self, name: str, hint: str = "") -> NoReturn:
        """Fail for a key that is absent; if another looks like it, that one is the mistake."""
        others = [given for given in self._values if given not in self._asked]
        if close := difflib.get_close_matches(name, others, n=1):
            self.fail(f"unknown key; did you mean {name!r}?", close[0])
        self.fail(f"{name!r} is missing" + (f": {hint}" if hint else ""))

    def done(self) -> None:
        """Fail on a key that means nothing here."""
        for name in self._values:
            if name not in self._asked:
                self.fail(f"unknown key; {near(name, self._asked)}", name)


def require(name: str, known: Iterable[str], section: Section, key: str) -> str:
    """Return the name of an earlier source or step, or fail with the one that was meant."""
    names = list(known)
    if name not in names:
        section.fail(f"nothing is named {name!r}; {near(name, names)}", key)
    return name


def checked(section: Section, name: str, check: Callable[[], object]) -> None:
    """Run a check of somebody else's; its complaint becomes one of this key."""
    try:
        check()
    except Exception as error:
        section.fail(str(error), name)


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).strip()


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    return {"dict": "a mapping", "list": "a list", "str": f"the text {value!r}"}.get(
        type(value).__name__, repr(value)
    )
