"""The ``steps`` of a pipeline file."""

import runpy
from collections.abc import Callable
from typing import Any

from millstream.pipelines.file.parse_sources import IDENTIFIER, watermark
from millstream.pipelines.file.section import Section, require
from millstream.pipelines.file.spans import seconds
from millstream.pipelines.file.spec import (
    DistinctStep,
    JoinStep,
    PythonStep,
    SqlStep,
    Step,
    WindowStep,
)

JOINS = ("inner", "left", "left_semi", "left_anti")


def parse_steps(top: Section, sources: list[str]) -> tuple[Step, ...]:
    """Return the steps; each may use what stands before it."""
    known, steps = list(sources), []
    for section in top.sections("steps"):
        step = _step(section, known)
        section.done()
        if step.name.lower() in (name.lower() for name in known):
            section.fail(f"{step.name!r} is taken: name it otherwise", "name")
        known.append(step.name)
        steps.append(step)
    return tuple(steps)


def _step(section: Section, known: list[str]) -> Step:
    name = section.text("name")
    if not IDENTIFIER.fullmatch(name):
        section.fail("a name is letters, digits and '_', as SQL uses it", "name")
    kind = section.one_of(*_KINDS)
    return _KINDS[kind](name, section, known)


def _sql(name: str, section: Section, _known: list[str]) -> Step:
    return SqlStep(name, section.text("sql"), watermark(section))


def _python(name: str, section: Section, known: list[str]) -> Step:
    inputs = section.names("from")
    if not inputs:
        section.missing("from", "which frames the function gets")
    for given in inputs:
        require(given, known, section, "from")
    return PythonStep(name, inputs, _function(section), watermark(section))


def _function(section: Section) -> Callable[..., Any]:
    """Return the function itself, or the one that ``file.py:function`` names beside the file."""
    given = section.take("python")
    if callable(given):
        found: Callable[..., Any] = given
        return found
    file, colon, name = str(given).rpartition(":")
    if not colon:
        section.fail("must be file.py:function", "python")
    path = section.document.directory / file
    if not path.is_file():
        section.fail(f"there is no file {path}", "python")
    try:
        names = runpy.run_path(str(path), run_name="millstream.step")
    except Exception as error:
        section.fail(f"{path}: {type(error).__name__}: {error}", "python")
    if not callable(names.get(name)):
        section.fail(f"{path} defines no function {name!r}", "python")
    found = names[name]
    return found


def _window(name: str, section: Section, known: list[str]) -> Step:
    below = section.section("window")
    assert below is not None
    column, slide = below.text("column"), below.interval("slide")
    kind = below.one_of("size", "session")
    size = below.interval(kind)
    below.done()
    if size is None or (kind == "session" and slide):
        below.fail("a session has a pause and no slide: {column: at, session: 10m}")
    aggregates = section.texts("aggregate")
    if not aggregates:
        section.missing("aggregate", "such as {orders: count(*), revenue: sum(amount)}")
    source = require(section.text("from"), known, section, "from")
    by, late = section.names("by"), watermark(section)
    return WindowStep(name, source, column, size, aggregates, by, slide, kind == "session", late)


def _rollup(name: str, section: Section, known: list[str]) -> Step:
    """Return the window of a roll-up: how many, how fast, and how one value is spread."""
    below = section.section("rollup")
    assert below is not None
    size, value = below.interval("size"), below.optional("value")
    column = below.optional("column") or "ts"
    below.done()
    if size is None:
        below.fail("'size' is missing: how long a window is, such as 1m")
    aggregates = rollup_aggregates(size, value) | section.texts("aggregate")
    by = section.names("by") if "by" in section else ("stream", "subject")
    source = require(section.text("from"), known, section, "from")
    return WindowStep(name, source, column, size, aggregates, by, watermark=watermark(section))


def rollup_aggregates(size: str, value: str | None) -> dict[str, str]:
    """Return what a roll-up counts; percentiles are near ones, as exact ones keep every value."""
    found = {"records": "count(*)", "per_second": f"round(count(*) / {seconds(size)}D, 3)"}
    if value is not None:
        found |= {"min": f"min({value})", "mean": f"avg({value})", "max": f"max({value})"}
        found |= {f"p{at}": f"percentile_approx({value}, {at / 100})" for at in (50, 90, 99)}
    return found


def _join(name: str, section: Section, known: list[str]) -> Step:
    below = section.section("join")
    assert below is not None
    left = require(below.text("left"), known, below, "left")
    right = require(below.text("right"), known, below, "right")
    on, how = below.names("on"), below.optional("how") or "inner"
    below.done()
    if not on:
        below.fail("'on' is missing: the columns that both sides have")
    if how not in JOINS:
        below.fail(f"must be one of {', '.join(JOINS)}, not {how!r}", "how")
    return JoinStep(name, left, right, on, how, watermark(section))


def _distinct(name: str, section: Section, known: list[str]) -> Step:
    source = require(section.text("from"), known, section, "from")
    return DistinctStep(name, source, section.names("distinct"), watermark(section))


_KINDS: dict[str, Callable[[str, Section, list[str]], Step]] = {
    "sql": _sql,
    "python": _python,
    "window": _window,
    "rollup": _rollup,
    "join": _join,
    "distinct": _distinct,
}
