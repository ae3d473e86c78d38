"""A subject pattern over a segment's table of subjects: each distinct subject is matched once."""

import re
from typing import TYPE_CHECKING

import numpy as np

from millstream.spark.problems import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.spark.reading.rows import Mask, Records


def pattern_of(subject: str) -> re.Pattern[str]:
    """Return the expression for a NATS subject with ``*`` (one token) and ``>`` (one or more)."""
    tokens = subject.split(".")
    if "" in tokens or ">" in tokens[:-1] or any(c.isspace() for c in subject):
        raise OptionError(
            f"{subject!r} is not a subject pattern: use one such as orders.*.eu or orders.>"
        )
    return re.compile(r"\.".join(_token(token) for token in tokens), re.DOTALL)


def matching(records: "Records", pattern: re.Pattern[str]) -> "Mask":
    """Return which records have a subject that the pattern matches."""
    wanted = np.fromiter(
        (pattern.fullmatch(subject) is not None for subject in _names(records.subjects)),
        dtype=np.bool_,
        count=len(records.subjects),
    )
    mask: Mask = wanted[records.entries["subject"]]
    return mask


def _names(subjects: "pa.StringArray") -> list[str]:
    names: list[str] = subjects.to_pylist()
    return names


def _token(token: str) -> str:
    if token == ">":
        return ".+"
    return r"[^.]+" if token == "*" else re.escape(token)
