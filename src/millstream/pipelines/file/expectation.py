"""The columns that a condition names, as far as that can be told without Spark."""

import re
from collections.abc import Iterable

_TEXT = re.compile(r"""(?:\b[xXrR])?'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
_TOKEN = re.compile(r"\d[\w.]*|[A-Za-z_]\w*|\S")
# What may hold names of its own: subqueries, functions of values, quoted names.
_BEYOND = re.compile(r"->|`|\bselect\b", re.IGNORECASE)
_WORDS = frozenset(
    re.findall(
        r"\w+",
        "all and any array as at between bigint binary boolean byte case cast char current_catalog "
        "current_database current_date current_schema current_time current_timestamp current_user "
        "date day days dec decimal distinct div double else end escape exists false filter float "
        "from hour hours ilike in int integer interval is like localtimestamp long map microsecond "
        "microseconds millisecond milliseconds minute minutes month months nan not null numeric or "
        "over partition quarter real regexp rlike second seconds session_user short similar "
        "smallint some string struct symmetric then time timestamp timestamp_ltz timestamp_ntz "
        "tinyint to true user varchar variant void week weeks when where year years zone",
    )
)


def unknown_columns(condition: str, known: Iterable[str]) -> list[str]:
    """Return the names in a condition that are no column; none where it cannot be told."""
    if _BEYOND.search(condition):
        return []
    there = {name.lower() for name in known}
    tokens = _TOKEN.findall(_TEXT.sub(" 0 ", condition))
    found = []
    for before, token, after in zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False):
        name = token.lower()
        is_name = name[0].isalpha() or name[0] == "_"
        if not is_name or name in _WORDS or after == "(" or before in (".", ":"):
            continue
        if name not in there:
            found.append(token)
    return found


def ddl_names(fields: str) -> list[str] | None:
    """Return the names of fields in Spark's DDL, None where it is not plain enough."""
    names, depth, start = [], 0, 0
    for at, letter in enumerate(f"{fields},"):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            name = re.match(r"\s*([A-Za-z_]\w*)[\s:]", fields[start:at])
            if name is None:
                return None
            names.append(name[1])
            start = at + 1
    return names
