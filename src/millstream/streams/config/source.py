"""Source: another stream whose records a stream takes in; what may be asked of it."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from millstream.errors import InvalidStreamConfig, TooManySources
from millstream.streams.config.extras import VERSION, first_values
from millstream.streams.config.feature_rules import FeatureRefused, transform_of
from millstream.subjects.pattern_set import first_covered, first_overlapping
from millstream.subjects.subject import has_wildcard, is_pattern, overlap
from millstream.subjects.transform import BadTransform, SubjectTransform

MAX_SOURCES = 1_000
MAX_TRANSFORMS = 1_000  # of all sources of a stream
HEADER = b"Nats-Stream-Source"
_ILLEGAL_IN_NAMES = frozenset(" \t\r\n\f.*>\\/\0")
_EXPECTATIONS = (b"Nats-Expected-", b"Nats-Batch-")
_STRIPPED = (HEADER + b":", *_EXPECTATIONS)
_DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_API = "$JS.API"


class SubjectRewrite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One ``{src, dest}`` of a source: what it takes, and under which subject."""

    src: str = ""
    dest: str = ""


class External(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where another account's streams are reached: the prefix of its API, and of deliveries."""

    api: str = ""
    deliver: str = ""

    def shown(self) -> dict[str, str]:
        """Return it as StreamInfo shows it."""
        return {"api": self.api, "deliver": self.deliver}


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of ``sources``, or the ``mirror``."""

    name: str = ""
    opt_start_seq: int = 0
    opt_start_time: str = ""
    filter_subject: str = ""
    subject_transforms: tuple[SubjectRewrite, ...] = ()
    external: External | None = None
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
        name = self.name
        if self.external is not None:
            name = f"{name}:{short_hash(self.external.api)}"
        if self.consumer is not None:
            name = f"{name}:C={short_hash(self.consumer.get('name') or '')}"
        if self.subject_transforms:
            targets = [rewrite.dest or ">" for rewrite in self.subject_transforms]
            return name, "\f".join(self.filters), "\f".join(targets)
        return name, self.filter_subject or ">", ">"

    def transforms(self) -> list[SubjectTransform]:
        """Return the rewrites that change something."""
        made = (transform_of({"src": r.src, "dest": r.dest}) for r in self.subject_transforms)
        return [transform for transform in made if transform is not None]


def check(sources: Sequence[Mapping[str, Any]]) -> None:
    """Refuse sources that cannot work."""
    seen: set[object] = set()
    rewrites = 0
    for wire in sources:
        source = Source.read(wire)
        if not _is_name(source.name):
            raise FeatureRefused(10141, "sourced stream name is invalid")
        rewrites += len(source.subject_transforms)
        _check_rewrites(rewrites)
        if source.identity in seen:
            raise FeatureRefused(10140, "duplicate source configuration detected")
        seen.add(source.identity)
        _check_filters(source)
        _check_consumer(source, FeatureRefused(10215, "stream source consumer config is invalid"))
        if source.consumer is not None:
            if (source.identity[0], "consumer") in seen:
                raise FeatureRefused(10216, "duplicate stream source consumer detected")
            seen.add((source.identity[0], "consumer"))
        if source.filter_subject and not is_pattern(source.filter_subject):
            raise InvalidFilter(source.filter_subject, "source:")
        check_external(source)


def check_mirror(wire: Mapping[str, Any]) -> None:
    """Refuse an origin that no stream can mirror."""
    origin = Source.read(wire)
    _check_rewrites(len(origin.subject_transforms))
    _check_consumer(origin, FeatureRefused(10213, "stream mirror consumer config is invalid"))
    if origin.filter_subject and origin.subject_transforms:
        raise FeatureRefused(
            10150,
            "mirror with multiple subject transforms cannot also have a single subject filter",
        )
    _check_transforms(origin, (10151, "mirror transform source"), (10154, "mirror transform"))
    taken = origin.filters if origin.subject_transforms else ()
    if first_overlapping(taken) is not None:
        raise FeatureRefused(10152, "mirror subject filters can not overlap")
    if origin.external is None and not _is_name(origin.name):
        raise FeatureRefused(10142, "mirrored stream name is invalid")
    if origin.filter_subject and not is_pattern(origin.filter_subject):
        raise InvalidFilter(origin.filter_subject, "mirror")
    check_external(origin)


def check_count(count: int) -> None:
    """Refuse more sources than a stream may have."""
    TooManySources.check("sources of a stream", count, MAX_SOURCES)


def _check_rewrites(rewrites: int) -> None:
    TooManySources.check("subject transforms of a stream's sources", rewrites, MAX_TRANSFORMS)


def _is_name(name: str) -> bool:
    return bool(name) and _ILLEGAL_IN_NAMES.isdisjoint(name)


def _check_filters(source: Source) -> None:
    if source.filter_subject and source.subject_transforms:
        raise FeatureRefused(
            10144,
            "source with multiple subject transforms cannot also have a single subject filter",
        )
    _check_transforms(source, (10145, "source transform source"), (10146, "source transform"))
    if source.subject_transforms and first_covered(source.filters) is not None:
        raise FeatureRefused(10147, "source filters can not overlap")


def _check_transforms(source: Source, filters: tuple[int, str], whole: tuple[int, str]) -> None:
    """Refuse rewrites that cannot be; the pairs say how each kind of mistake is told."""
    for rewrite in source.subject_transforms:
        if rewrite.src and not is_pattern(rewrite.src):
            raise FeatureRefused(filters[0], f"{filters[1]}: invalid subject {rewrite.src}")
    try:
        source.transforms()
    except BadTransform as error:
        raise FeatureRefused(whole[0], f"{whole[1]}: {error.message}") from error


def _check_consumer(source: Source, invalid: FeatureRefused) -> None:
    if source.consumer is None:
        return
    deliver = source.consumer.get("deliver_subject") or ""
    literal = is_pattern(deliver) and not has_wildcard(deliver)
    starts = source.opt_start_seq or source.opt_start_time or source.filter_subject
    if not _is_name(source.consumer.get("name") or "") or not literal or starts:
        raise invalid


def check_external(source: Source) -> None:
    """Refuse prefixes that name nothing, or our own API."""
    if source.external is None:
        return
    api, deliver = source.external.api, source.external.deliver
    if deliver and (not is_pattern(deliver) or has_wildcard(deliver)):
        raise FeatureRefused(
            10024, f"stream external delivery prefix {deliver} must not contain wildcards"
        )
    if api and (not is_pattern(api) or has_wildcard(api)):
        quoted = msgspec.json.encode(api).decode()
        raise InvalidStreamConfig(
            f"stream external api prefix {quoted} must be a valid subject without wildcards"
        )
    if api and overlap(api, _API):
        why = f"stream external api prefix {api} must not overlap with {_API}"
        raise FeatureRefused(10021, why)


def needs_flow_acks(*, mirrors: bool) -> FeatureRefused:
    """Return what is wrong with a consumer of the origin that is not acked by flow control."""
    if mirrors:
        return FeatureRefused(10214, "stream mirror consumer requires flow control ack policy")
    return FeatureRefused(10217, "stream source consumer requires flow control ack policy")


class TooSmall(FeatureRefused):
    """A stream whose records may be smaller than those that it takes in."""

    def __init__(self, is_mirror: bool) -> None:
        if is_mirror:
            super().__init__(10030, "stream mirror must have max message size >= source")
        else:
            super().__init__(10046, "stream source must have max message size >= target")


class InvalidFilter(InvalidStreamConfig):
    """A mirror's or source's filter that is no subject."""

    err_code = 10049

    def __init__(self, pattern: str, whose: str) -> None:
        super().__init__(f"subject filter '{pattern}' for the {whose} invalid subject")


class Origin(Protocol):
    """What tells one incarnation of a stream from another."""

    created_ns: int

    @property
    def incarnation(self) -> int:
        """Return the id that delete and recreate changes."""
        ...


def short_hash(text: str) -> str:
    """Return eight letters and digits that stand for a text, as the reference makes them."""
    digest = hashlib.sha256(text.encode()).digest()
    return bytes(_DIGITS[byte % len(_DIGITS)] for byte in digest[:8]).decode()


def identity_of(origin: Origin) -> str:
    """Return the word by which records name the incarnation that they come from."""
    return short_hash(f"{origin.created_ns} {origin.incarnation}")


def is_same(identity: str, origin: Origin) -> bool:
    """Whether records that carry this word come from this very stream."""
    return identity in (identity_of(origin), str(origin.incarnation))


def without_expectations(headers: bytes) -> bytes:
    """Return a header block without what only its own stream could check."""
    if b"\nNats-Expected-" not in headers and b"\nNats-Batch-" not in headers:
        return headers
    kept = [line for line in _lines(headers) if not line.startswith(_EXPECTATIONS)]
    return b"%s%s\r\n\r\n" % (VERSION, b"\r\n".join(kept)) if kept else b""


def marked(headers: bytes, value: bytes) -> bytes:
    """Return a header block for the target: where the record comes from, and no demands."""
    kept = [line for line in _lines(headers) if not line.startswith(_STRIPPED)]
    return b"%s%s\r\n\r\n" % (VERSION, b"\r\n".join([*kept, b"%s: %s" % (HEADER, value)]))


def _lines(headers: bytes) -> list[bytes]:
    return headers.removesuffix(b"\r\n\r\n").split(b"\r\n")[1:] if headers else []


def origin_of(headers: bytes, identity: tuple[str, str, str]) -> tuple[int, str] | None:
    """Return (origin's sequence, origin's incarnation) of a record that this source brought."""
    text = first_values(headers).get(HEADER, b"").decode("utf-8", "surrogateescape")
    name, _, rest = text.partition(" ")
    seq, _, rest = rest.partition(" ")
    taken = f"{identity[1]} {identity[2]} "  # a destination may hold blanks
    if name != identity[0] or not seq.isdigit() or not rest.startswith(taken):
        return None
    return int(seq), rest[len(taken) :].partition(" ")[2]


class Feeding(Protocol):
    """The part of a configuration that says where records come from."""

    @property
    def subjects(self) -> tuple[str, ...]:
        """Return what is captured."""
        ...

    @property
    def sources(self) -> tuple[dict[str, Any], ...]:
        """Return the sources."""
        ...

    @property
    def mirror(self) -> dict[str, Any] | None:
        """Return the origin of a mirror."""
        ...


Key = tuple[str, str]  # account and name


def forms_cycle(
    start: Key,
    config: Feeding,
    find: Callable[[Key], Feeding | None],
    reach: Callable[[str, Source], Key | None],
) -> bool:
    """Whether records could come back to a stream.

    ``find`` returns another stream's configuration, ``reach`` which stream a source means.
    """
    waiting: deque[tuple[Key, Feeding]] = deque([(start, config)])
    visited: set[Key] = set()
    seen = {start}  # each stream is looked at once, however many ways lead to it
    while waiting:
        key, at = waiting.popleft()
        visited.add(key)
        for source, certain in _origins(at):
            origin = reach(key[0], source)
            if origin is None:
                continue
            wanted = source.filter_subject
            if origin in visited:
                if certain or not wanted or any(overlap(one, wanted) for one in at.subjects):
                    return True
            elif origin not in seen and (found := find(origin)) is not None:
                seen.add(origin)
                waiting.append((origin, found))
    return False


def _origins(config: Feeding) -> Iterable[tuple[Source, bool]]:
    """Return what feeds a stream, and whether everything comes through."""
    for wire in config.sources:
        yield Source.read(wire), False
    if config.mirror is not None:
        yield Source.read(config.mirror), True
