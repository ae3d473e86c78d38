"""Requests that read records without subscribing to their subjects, and who may make them.

A record that comes by a consumer is filtered on its way like any message. What these requests
return is an answer under the asker's own subject, so they are judged before they are carried out:
whoever must not hear a subject does not get it by asking either.
"""

from collections.abc import Callable
from typing import NamedTuple

from millstream.accounts.permissions import Rule
from millstream.accounts.sight import Sight, sees_some
from millstream.subjects.pattern_set import any_overlap
from millstream.subjects.subject import is_literal

_MILLSTREAM = ("$MILLSTREAM", "API")
_PART_READS = ("PLAN", "READ")  # what these answer leaves out what the asker may not hear
_WHOLE_READS = (*_PART_READS, "HOLD")
_WHOLE_WRITES = ("STAGE", "COMMIT", "ABORT")

# From account and stream to the patterns of its subjects; None when there is no such stream.
SubjectsOf = Callable[[str, str], "tuple[str, ...] | None"]


class ReadRequest(NamedTuple):
    """Which stream is asked for, and the one subject in it, where the request names one."""

    stream: str
    subject: str = ""
    whole: bool = False  # the answer may hold every record of the stream
    parts: bool = False  # or, for whoever may not read them all, some


def read_request(subject: str) -> ReadRequest | None:
    """Return what a request for records asks for, None for any other subject."""
    tokens = subject.split(".")
    if tuple(tokens[:2]) == _MILLSTREAM and tokens[2:3] and tokens[2] in _WHOLE_READS:
        return ReadRequest(".".join(tokens[3:]), whole=True, parts=tokens[2] in _PART_READS)
    if tokens[0] != "$JS" or "API" not in tokens[1:3]:
        return None
    operation = tokens[tokens.index("API") + 1 :]
    if operation[:3] == ["STREAM", "MSG", "GET"] and len(operation) == 4:
        return ReadRequest(operation[3])
    if operation[:2] == ["STREAM", "SNAPSHOT"] and len(operation) == 3:
        return ReadRequest(operation[2], whole=True)
    if operation[:2] == ["DIRECT", "GET"] and len(operation) > 2:
        return ReadRequest(operation[2], ".".join(operation[3:]))
    return None


def may_read(rule: Rule, request: ReadRequest, patterns: tuple[str, ...] | None) -> bool:
    """Say whether nothing that the request could return is denied by ``rule``.

    ``patterns`` are the stream's subjects; where they are not known, nothing may be read. A request
    that is answered in parts needs no more than that some record may be read.
    """
    if request.parts and patterns is not None and sees_some(rule, _captured(patterns)):
        return True
    denied = rule.filters()
    if request.whole and rule.allow is not None and not _permits_all(rule, patterns):
        return False
    if not denied:
        return True
    if request.subject and is_literal(request.subject):
        return not rule.denies(request.subject)
    if patterns is None:
        return False
    return not any_overlap(patterns, denied)


def sight_of(rule: Rule, stream: str, patterns: tuple[str, ...] | None) -> Sight | None:
    """Return what ``rule`` leaves of a stream, None for all of it."""
    return None if may_read(rule, ReadRequest(stream, whole=True), patterns) else Sight(rule)


def written_stream(subject: str) -> str | None:
    """Return the stream that a request would append staged records to, None for any other."""
    tokens = subject.split(".")
    if tuple(tokens[:2]) == _MILLSTREAM and tokens[2:3] and tokens[2] in _WHOLE_WRITES:
        return ".".join(tokens[3:])
    return None


def may_write(rule: Rule, patterns: tuple[str, ...] | None) -> bool:
    """Say whether everything that a stream takes may be published."""
    if patterns is None:
        return False
    if any_overlap(patterns, [entry.pattern for entry in rule.deny]):
        return False
    return _permits_all(rule, patterns)


def _permits_all(rule: Rule, patterns: tuple[str, ...] | None) -> bool:
    return patterns is not None and all(rule.permits(one) for one in _captured(patterns))


def _captured(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the subjects that a stream captures; its own name stands last among its patterns.

    Only a stream that captures none is known by its name alone.
    """
    return patterns[:-1] or patterns


def unknown_subjects(account: str, stream: str) -> tuple[str, ...] | None:
    """Know nothing about streams."""
    return None
