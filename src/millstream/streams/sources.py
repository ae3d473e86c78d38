"""Source: another stream whose records a stream takes in; what may be asked of it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from millstream.errors import InvalidStreamConfig
from millstream.streams.extras import VERSION, first_values
from millstream.streams.feature_rules import FeatureRefused, transform_of
from millstream.subjects.subject import is_pattern, is_subset, overlap
from millstream.subjects.transform import BadTransform, SubjectTransform

HEADER = b"Nats-Stream-Source"
_ILLEGAL_IN_NAMES = frozenset(" \t\r\n\f.*>\\/\0")
_STRIPPED = (HEADER + b":", b"Nats-Expected-", b"Nats-Batch-")


class Rewrite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One ``{src, dest}`` of a source: what it takes, and under which subject."""

    src: str = ""
    dest: str = ""


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of ``sources``."""

    name: str = ""
    opt_start_seq: int = 0
    opt_start_time: str = ""
    filter_subject: str = ""
    subject_transforms: tuple[Rewrite, ...] = ()
    external: dict[str, Any] | None = None
    consumer: dict[str, Any] | None = None

    @classmethod
    def read(cls, wire: Mapping[str, Any]) -> "Source":
        """Read a checked entry."""
        return msgspec.convert({k: v for k, v in wire.items() if v is not None}, cls)

    @property
    def filters(self) -> tuple[str, ...]:
        """Return what is taken of the origin; nothing lets everything pass."""
        if self.subject_transforms:
            return tuple(rewrite.src or ">" for rewrite in self.subject_transforms)
        return (self.filter_subject,) if self.filter_subject else ()

    @property
    def identity(self) -> tuple[str, str, str]:
        """Return what tells two sources of one stream apart: name, filters, destinations."""
        if self.subject_transforms:
            targets = [rewrite.dest or ">" for rewrite in self.subject_transforms]
            return self.name, "\f".join(self.filters), "\f".join(targets)
        return self.name, self.filter_subject or ">", ">"

    def transforms(self) -> list[SubjectTransform]:
        """Return the rewrites that change something."""
        made = (transform_of({"src": r.src, "dest": r.dest}) for r in self.subject_transforms)
        return [transform for transform in made if transform is not None]


def check(sources: Sequence[Mapping[str, Any]]) -> None:
    """Refuse sources that cannot work."""
    seen = set()
    for wire in sources:
        source = Source.read(wire)
        if not source.name or not _ILLEGAL_IN_NAMES.isdisjoint(source.name):
            raise FeatureRefused(10141, "sourced stream name is invalid")
        if source.identity in seen:
            raise FeatureRefused(10140, "duplicate source configuration detected")
        seen.add(source.identity)
        for key in ("external", "consumer"):
            if getattr(source, key):
                raise InvalidStreamConfig(f"sources: {key} is not supported by this server yet")
        _check_filters(source)


def _check_filters(source: Source) -> None:
    if source.filter_subject and source.subject_transforms:
        raise FeatureRefused(
            10144,
            "source with multiple subject transforms cannot also have a single subject filter",
        )
    for rewrite in source.subject_transforms:
        if rewrite.src and not is_pattern(rewrite.src):
            raise FeatureRefused(10145, f"source transform source: invalid subject {rewrite.src}")
    try:
        source.transforms()
    except BadTransform as error:
        raise FeatureRefused(10146, f"source transform: {error.message}") from error
    taken = source.filters
    for at, one in enumerate(taken):
        if any(is_subset(one, other) for other in taken[:at] + taken[at + 1 :]):
            raise FeatureRefused(10147, "source filters can not overlap")
    if source.filter_subject and not is_pattern(source.filter_subject):
        raise InvalidSourceFilter(source.filter_subject)


class InvalidSourceFilter(InvalidStreamConfig):
    """A source's filter that is no subject."""

    err_code = 10049

    def __init__(self, pattern: str) -> None:
        super().__init__(f"subject filter '{pattern}' for the source: invalid subject")


def marked(headers: bytes, value: bytes) -> bytes:
    """Return a header block for the target: where the record comes from, and no demands."""
    lines = headers.removesuffix(b"\r\n\r\n").split(b"\r\n")[1:] if headers else []
    kept = [line for line in lines if not line.startswith(_STRIPPED)]
    return b"%s%s\r\n\r\n" % (VERSION, b"\r\n".join([*kept, b"%s: %s" % (HEADER, value)]))


def origin_of(headers: bytes, identity: tuple[str, str, str]) -> tuple[int, str] | None:
    """Return (origin's sequence, origin's incarnation) of a record that this source brought."""
    text = first_values(headers).get(HEADER, b"").decode("utf-8", "surrogateescape")
    name, _, rest = text.partition(" ")
    seq, _, rest = rest.partition(" ")
    taken = f"{identity[1]} {identity[2]} "  # a destination may hold blanks
    if name != identity[0] or not seq.isdigit() or not rest.startswith(taken):
        return None
    return int(seq), rest[len(taken) :].partition(" ")[2]


def forms_cycle(
    name: str,
    subjects: Sequence[str],
    sources: Iterable[Mapping[str, Any]],
    known: Mapping[str, tuple[Sequence[str], Iterable[Mapping[str, Any]]]],
) -> bool:
    """Whether records could come back to the stream; ``known`` are the other streams by name."""
    waiting, visited = [(name, subjects, sources)], set()
    while waiting:
        at, taken, feeds = waiting.pop(0)
        visited.add(at)
        for wire in feeds:
            source = Source.read(wire)
            wanted = source.filter_subject
            if source.name in visited:
                if not wanted or any(overlap(subject, wanted) for subject in taken):
                    return True
            elif source.name in known:
                waiting.append((source.name, *known[source.name]))
    return False
