"""SubjectTransform: rewrites a literal subject by a source pattern and a destination template.

Destination tokens are literals, ``$n``, or a function in double braces (``_Template._function``).
A function may yield several tokens (``split`` and friends), which then are joined by dots.
"""

import random
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from millstream.errors import BadRequest

_CALL = re.compile(r"\{\{\s*(\w+)\s*\((.*)\)\s*\}\}")
_MOST = 2**31 - 1

Part: TypeAlias = Callable[[Sequence[str], str], str]
"""From the subject's wildcard tokens and the whole subject to destination text."""


class BadTransform(BadRequest):
    """A transform that cannot work; the message names the token at fault."""

    err_code = 10052


class BadSubject(BadTransform):
    """One of the two is no subject that could be rewritten, or be the result."""


def fnv1a(text: str) -> int:
    """Return the 32-bit FNV-1a hash that partition numbers are made of."""
    value = 2166136261
    for byte in text.encode("utf-8", "surrogateescape"):
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value


def _chunks(token: str, size: int) -> list[str]:
    return [token[at : at + size] for at in range(0, len(token), size)]


def _cut_left(token: str, at: int) -> str:
    return f"{token[:at]}.{token[at:]}" if 0 < at < len(token) else token


def _cut_right(token: str, at: int) -> str:
    return _cut_left(token, len(token) - at) if 0 < at < len(token) else token


def _slice_left(token: str, size: int) -> str:
    return ".".join(_chunks(token, size)) if 0 < size < len(token) else token


def _slice_right(token: str, size: int) -> str:
    if not 0 < size < len(token):
        return token
    head = len(token) % size
    return ".".join(([token[:head]] if head else []) + _chunks(token[head:], size))


def _left(token: str, length: int) -> str:
    return token[:length] if 0 < length < len(token) else token


def _right(token: str, length: int) -> str:
    return token[-length:] if 0 < length < len(token) else token


_SIZED: dict[str, Callable[[str, int], str]] = {
    "splitfromleft": _cut_left,
    "splitfromright": _cut_right,
    "slicefromleft": _slice_left,
    "slicefromright": _slice_right,
    "left": _left,
    "right": _right,
}


class _Template:
    """Compiles destination tokens for a source with ``wildcards`` stars."""

    def __init__(self, wildcards: int, *, literal_source: bool, strict: bool) -> None:
        self._wildcards = wildcards
        self._literal_source = literal_source
        self._strict = strict
        self.used: set[int] = set()
        self.draws_lots = False

    def part(self, token: str) -> Part:
        """Return what ``token`` does to a subject."""
        if token[:1] == "$" and re.fullmatch(r"[+-]?\d+", token[1:]):
            return self._wildcard(token, int(token[1:]))
        if not (token.startswith("{{") and token.endswith("}}") and len(token) > 4):
            return lambda _tokens, _subject: token
        call = _CALL.fullmatch(token)
        if call is None:
            raise BadTransform(f"unknown mapping function in {token!r}")
        name = call[1].lower()
        args = re.split(r",\s*", call[2])
        if self._strict and name != "wildcard":
            raise BadTransform(f"{token!r}: an import may only use wildcard()")
        return self._function(token, name, args)

    def _function(self, token: str, name: str, args: list[str]) -> Part:
        if name == "wildcard":
            self._arity(token, args, 1, 1)
            return self._wildcard(token, self._number(token, args[0]))
        if name == "partition":
            return self._partition(token, args)
        if name == "random":
            self._arity(token, args, 1, 1)
            below = self._number(token, args[0])
            self.draws_lots = True
            return lambda _tokens, _subject: str(random.randrange(below) if below > 0 else 0)
        if name == "split":
            return self._split(token, args)
        if name in _SIZED:
            self._arity(token, args, 2, 2)
            at, size = self._index(token, args[0]), self._number(token, args[1])
            apply = _SIZED[name]
            return lambda tokens, _subject: apply(tokens[at], size)
        raise BadTransform(f"unknown mapping function in {token!r}")

    def _wildcard(self, token: str, index: int) -> Part:
        at = self._checked(token, index)
        return lambda tokens, _subject: tokens[at]

    def _partition(self, token: str, args: list[str]) -> Part:
        self._arity(token, args, 1, 1 + max(self._wildcards, len(args)))
        count = self._number(token, args[0])
        if len(args) == 1:
            return lambda _tokens, subject: str(fnv1a(subject) % count if count > 0 else 0)
        if self._literal_source:
            # The reference ignores token numbers here and hashes the whole subject.
            return lambda _tokens, subject: str(fnv1a(subject) % count if count > 0 else 0)
        chosen = [self._index(token, arg) for arg in args[1:]]
        return lambda tokens, _subject: str(
            fnv1a("".join(tokens[at] for at in chosen)) % count if count > 0 else 0
        )

    def _split(self, token: str, args: list[str]) -> Part:
        self._arity(token, args, 2, 2)
        at, mark = self._index(token, args[0]), args[1]
        if not mark or " " in mark or "." in mark:
            raise BadTransform(f"{token!r}: the delimiter holds no blank and no dot")
        return lambda tokens, _subject: ".".join(p for p in tokens[at].split(mark) if p)

    def _arity(self, token: str, args: list[str], least: int, most: int) -> None:
        if len(args) < least or args == [""]:
            raise BadTransform(f"{token!r}: not enough arguments")
        if len(args) > most:
            raise BadTransform(f"{token!r}: too many arguments")

    def _number(self, token: str, text: str) -> int:
        try:
            number = int(text.strip(" "))
        except ValueError:
            raise BadTransform(f"{token!r}: {text!r} is no number") from None
        if number > _MOST:
            raise BadTransform(f"{token!r}: {number} is above {_MOST}")
        return number

    def _index(self, token: str, text: str) -> int:
        return self._checked(token, self._number(token, text))

    def _checked(self, token: str, index: int) -> int:
        if self._literal_source or not 1 <= index <= self._wildcards:
            raise BadTransform(
                f"invalid mapping destination: wildcard index out of range in {token}: [{index}]"
            )
        self.used.add(index)
        return index - 1


class SubjectTransform:
    """``SubjectTransform("orders.*.>", "eu.{{wildcard(1)}}.>").apply("orders.7.new")``."""

    def __init__(self, source: str, destination: str, *, strict: bool = False) -> None:
        self.source = source or ">"
        self.destination = destination
        self._source = self.source.split(".")
        template = destination.split(".")
        self._check_shape(template)
        stars = [at for at, token in enumerate(self._source) if token == "*"]
        compiled = _Template(
            len(stars), literal_source=not stars and self._source[-1] != ">", strict=strict
        )
        self._stars = stars
        self._rest = self._source[-1] == ">"
        self._parts = [compiled.part(t) for t in (template[:-1] if self._rest else template)]
        self.draws_lots = compiled.draws_lots  # so that a subject has no one destination
        if strict and len(compiled.used) < len(stars):
            raise BadTransform(f"{destination!r} does not use every wildcard of {self.source!r}")

    def _check_shape(self, template: list[str]) -> None:
        for subject, tokens in ((self.source, self._source), (self.destination, template)):
            if "" in tokens or ">" in tokens[:-1] or re.search(r"[\t\r\n\f]", subject):
                raise BadSubject(f"{subject!r} is no valid subject")
        if "*" in template:
            raise BadSubject(f"{self.destination!r}: use {{{{wildcard(n)}}}} instead of *")
        if (self._source[-1] == ">") != (template[-1] == ">"):
            raise BadSubject("source and destination must both end in > or neither")

    def matches(self, subject: str) -> bool:
        """Say whether the source pattern takes this literal subject."""
        tokens = subject.split(".")
        if "" in tokens or len(tokens) < len(self._source):
            return False
        if not self._rest and len(tokens) != len(self._source):
            return False
        # "*" and the closing ">" take any token; zip stops at the end of the pattern.
        pairs = zip(self._source, tokens, strict=False)
        return all(want in ("*", ">", token) for want, token in pairs)

    def apply(self, subject: str) -> str:
        """Return the destination for a subject that matches."""
        tokens = subject.split(".")
        wild = [tokens[at] for at in self._stars]
        made = [part(wild, subject) for part in self._parts]
        if self._rest:
            made += tokens[len(self._source) - 1 :]
        return ".".join(made)
