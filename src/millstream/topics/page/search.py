"""Search: what a reader of messages looks for, decided on one record at a time."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from millstream.errors import BadRequest
from millstream.subjects.matcher import matcher
from millstream.topics.page.rendering import Fields

MOST_JSON = 256 * 1024  # of a payload that is taken apart to look at a path of it
LONGEST_PATH = 512
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\*)\]|\[\"([^\"]*)\"\]")

Test = Callable[[Fields], bool]
_ABSENT = object()


class Search(msgspec.Struct, frozen=True):
    """What a message must be like; None means anything."""

    subject: str | None = None
    tag: str | None = None  # may end in ``*``
    node: str | None = None
    text: str | None = None
    header: tuple[str, str | None] | None = None
    path: tuple[str | int, ...] | None = None
    op: str = "eq"
    value: Any = None

    @property
    def looks_inside(self) -> bool:
        """Say whether records must be looked at one by one."""
        return any(
            each is not None for each in (self.tag, self.node, self.text, self.header, self.path)
        )

    def test(self) -> Test | None:
        """Return what a record must pass, None when every one does."""
        tests: list[Test] = []
        if self.subject is not None and (match := matcher([self.subject])) is not None:
            tests.append(lambda record: match(record[2]))
        if self.tag is not None:
            tests.append(_tag_test(self.tag.encode()))
        if self.node is not None:
            node = self.node.encode()
            tests.append(lambda record: record[6] == node)
        if self.text is not None:
            part = self.text.encode()
            tests.append(lambda record: part in record[3])
        if self.header is not None:
            tests.append(_header_test(*self.header))
        if self.path is not None:
            tests.append(_json_test(self.path, self.op, self.value))
        if not tests:
            return None
        return lambda record: all(test(record) for test in tests)


def parse_path(text: str) -> tuple[str | int, ...]:
    """Read ``$.a.b[0]["odd name"][*]``; ``*`` is kept as it is and stands for any item."""
    if len(text) > LONGEST_PATH:
        raise BadRequest(f"a JSON path has at most {LONGEST_PATH} characters")
    rest = text.removeprefix("$")
    if rest and rest[0] not in ".[":
        rest = "." + rest
    steps: list[str | int] = []
    at = 0
    while at < len(rest):
        step = _STEP.match(rest, at)
        if step is None:
            raise BadRequest(f"cannot read the JSON path {text!r}: write it as $.name.list[0]")
        name, index, quoted = step.groups()
        if index is not None and index != "*":
            steps.append(int(index))
        else:
            steps.append(next(each for each in (name, quoted, index) if each is not None))
        at = step.end()
    return tuple(steps)


def find(value: Any, path: tuple[str | int, ...]) -> list[Any]:
    """Return what a path leads to in a JSON value: nothing, one thing, or many."""
    found = [value]
    for step in path:
        after: list[Any] = []
        for each in found:
            if step == "*":
                after += (
                    list(each.values())
                    if isinstance(each, dict)
                    else (each if isinstance(each, list) else [])
                )
            elif isinstance(step, int):
                after += each[step : step + 1] if isinstance(each, list) else []
            elif isinstance(each, dict) and step in each:
                after.append(each[step])
        found = after
    return found


def _tag_test(tag: bytes) -> Test:
    if tag.endswith(b"*"):
        prefix = tag[:-1]
        return lambda record: bool(record[5]) and record[5].startswith(prefix)
    return lambda record: record[5] == tag


def _header_test(name: str, value: str | None) -> Test:
    wanted, said = name.lower().encode(), None if value is None else value.encode()

    def test(record: Fields) -> bool:
        for line in record[4].split(b"\r\n")[1:]:
            key, colon, held = line.partition(b":")
            if colon and key.lower() == wanted and (said is None or said in held):
                return True
        return False

    return test


def _json_test(path: tuple[str | int, ...], op: str, value: Any) -> Test:
    decide = _COMPARE[op]

    def test(record: Fields) -> bool:
        payload = record[3]
        if not payload or len(payload) > MOST_JSON:
            return False
        try:
            held = msgspec.json.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return any(decide(each, value) for each in find(held, path))

    return test


def _ordered(held: Any, value: Any) -> int | None:
    """Return how two values compare, None where they do not."""
    numbers = isinstance(held, int | float) and isinstance(value, int | float)
    if numbers or (isinstance(held, str) and isinstance(value, str)):
        return int(held > value) - int(held < value)
    return None


def _contains(held: Any, value: Any) -> bool:
    if isinstance(held, str):
        return str(value) in held
    return isinstance(held, list) and value in held


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda held, value: held == value,
    "ne": lambda held, value: held != value,
    "gt": lambda held, value: _ordered(held, value) == 1,
    "lt": lambda held, value: _ordered(held, value) == -1,
    "contains": _contains,
    "exists": lambda held, value: held is not _ABSENT,
}
