"""Filters that Spark hands down (``pushdown=true``): they narrow what is read, Spark checks again.

Spark asks a Python source for filters only with ``spark.sql.python.filterPushdown.enabled=true``,
and fails where a reader wants them and the setting is off, so it is an option of its own.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
)

from millstream.spark.options import ReadOptions
from millstream.spark.source import BatchReader


class PushdownReader(BatchReader):
    """A batch reader that leaves out what a filter on seq, ts, ts_ns or subject rules out."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow the read; every filter is returned, as rows at the edges remain."""
        for one in filters:
            self._options = narrowed(self._options, one)
        return filters


def narrowed(options: ReadOptions, pushed: Filter) -> ReadOptions:
    """Return options that read no more than the filter lets through, and nothing less."""
    attribute = getattr(pushed, "attribute", None)
    if attribute is None or len(attribute) != 1:
        return options
    (column,) = attribute
    value = getattr(pushed, "value", None)
    if column == "subject" and isinstance(pushed, EqualTo) and options.subject is None:
        return replace(options, subject=value) if _is_literal(value) else options
    if column == "seq" and isinstance(value, int):
        return _by_seq(options, pushed, value)
    if column == "ts" and isinstance(value, datetime) and value.tzinfo is not None:
        return _by_time(options, pushed, value)
    return options


def _is_literal(subject: Any) -> bool:
    return isinstance(subject, str) and not any(c in subject for c in "*> \t")


def _by_seq(options: ReadOptions, pushed: Filter, value: int) -> ReadOptions:
    least, most = options.start_seq, options.end_seq
    match pushed:
        case EqualTo():
            least, most = _highest(least, value), _lowest(most, value)
        case GreaterThanOrEqual():
            least = _highest(least, value)
        case GreaterThan():
            least = _highest(least, value + 1)
        case LessThanOrEqual():
            most = _lowest(most, value)
        case LessThan():
            most = _lowest(most, value - 1)
    # A sequence below the first is nothing lost: whoever filters did not ask for a range.
    return replace(options, start_seq=least, end_seq=most, exact_start=False)


def _by_time(options: ReadOptions, pushed: Filter, value: datetime) -> ReadOptions:
    """Take a bound where the options have none; a relative one of theirs is left alone."""
    text = value.isoformat()
    if isinstance(pushed, GreaterThan | GreaterThanOrEqual) and options.start_time is None:
        return replace(options, start_time=text)
    if isinstance(pushed, LessThan) and options.end_time is None:
        return replace(options, end_time=text)
    return options


def _highest(one: int | None, other: int) -> int:
    return other if one is None else max(one, other)


def _lowest(one: int | None, other: int) -> int:
    return max(other if one is None else min(one, other), 0)
