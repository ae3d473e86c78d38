"""Exposition: figures in the text format that Prometheus reads."""

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"

_ILLEGAL = re.compile(r"[^a-zA-Z0-9]+")

Labels = Mapping[str, str]


class Sample(msgspec.Struct, frozen=True):
    """One figure; ``suffix`` is ``_bucket``, ``_sum`` or ``_count`` of a histogram."""

    value: float
    labels: Labels = msgspec.field(default_factory=dict)
    suffix: str = ""


class Family(msgspec.Struct, frozen=True):
    """One name with all its samples."""

    name: str
    kind: str
    help: str
    samples: Sequence[Sample]


def gauge(name: str, help_text: str, value: float, labels: Labels | None = None) -> Family:
    """Return a family of one gauge."""
    return Family(name, GAUGE, help_text, [Sample(value, labels or {})])


def counter(name: str, help_text: str, value: float, labels: Labels | None = None) -> Family:
    """Return a family of one counter."""
    return Family(name, COUNTER, help_text, [Sample(value, labels or {})])


def histogram(
    name: str, help_text: str, bounds: Sequence[float], counts: Sequence[int], total: float
) -> Family:
    """Return a histogram; ``counts`` are per bucket, the last one above every bound."""
    samples, seen = [], 0
    for bound, count in zip([*(f"{b:g}" for b in bounds), "+Inf"], counts, strict=True):
        seen += count
        samples.append(Sample(seen, {"le": bound}, "_bucket"))
    return Family(
        name,
        HISTOGRAM,
        help_text,
        [*samples, Sample(total, {}, "_sum"), Sample(seen, {}, "_count")],
    )


def render(families: Iterable[Family]) -> bytes:
    """Return the page; a family without samples is left out."""
    lines: list[str] = []
    for family in families:
        if not family.samples:
            continue
        lines.append(f"# HELP {family.name} {_help(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for sample in family.samples:
            labels = ",".join(f'{name}="{_escape(v)}"' for name, v in sample.labels.items())
            where = f"{{{labels}}}" if labels else ""
            lines.append(f"{family.name}{sample.suffix}{where} {_number(sample.value)}")
    return "\n".join([*lines, ""]).encode()


def legal_name(text: str) -> str:
    """Return a text as a metric's name may spell it."""
    return _ILLEGAL.sub("_", text).strip("_")


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
