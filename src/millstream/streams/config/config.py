"""StreamConfig: one configuration with two faces, JetStream's stream and HTTP's topic.

The JetStream face is the wire object of ``STREAM.CREATE``; the HTTP face is the topic object of
17 keys. What only HTTP knows lives in ``metadata`` under ``millstream.*``, so that one value is
stored and either door can show it whole.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Self

import msgspec

from millstream.delivery.record_key import KEY, RecordKey
from millstream.errors import (
    BadRequest,
    InvalidStreamConfig,
    MillstreamError,
    TooManySubjects,
)
from millstream.store.log.log import Durability
from millstream.streams.config import feature_rules
from millstream.streams.config import source as sources
from millstream.subjects.pattern_set import LONGEST_SUBJECT, first_overlapping
from millstream.subjects.subject import is_pattern, is_subset, overlap

MAX_NAME = 255
MAX_SUBJECTS = 10_000
MAX_DESCRIPTION = 4096
MAX_METADATA = 128 * 1024
MAX_REPLICAS = 5
DEFAULT_WINDOW_NS = 120_000_000_000
SHORTEST_NS = 100_000_000  # of max_age and duplicate_window, as the reference has it
API_LEVEL = 5
SERVER_VERSION = "2.15.1"

_ILLEGAL_IN_NAMES = frozenset(" \t\r\n\f.*>\\/\0")
_TOPIC_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}")
_DURABILITY = "millstream.durability"
_TYPE = "millstream.type"
_DEAD_LETTER = "millstream.dead_letter"
MADE_AS = _TYPE  # in the metadata of what was made over HTTP
_U64 = 2**64 - 1
_MAX_TTL_MS = (2**63 - 1) // 1_000_000  # what fits into JetStream's nanoseconds


class InvalidJson(MillstreamError):
    """The request is no JSON object of the documented fields."""

    status = 400
    err_code = 10025
    http_status = 400
    code = "invalid_request"

    def __init__(self, why: str) -> None:
        super().__init__(f"invalid JSON: {why}")


class ReplicasUnsupported(MillstreamError):
    """More than one replica was asked of a single server."""

    status = 500
    err_code = 10074
    http_status = 400
    code = "invalid_request"

    def __init__(self) -> None:
        super().__init__("replicas > 1 not supported in non-clustered mode")


class PathInStreamName(MillstreamError):
    """A stream name with a path separator."""

    status = 400
    err_code = 10128
    http_status = 400
    code = "invalid_request"

    def __init__(self) -> None:
        super().__init__("Stream name can not contain path separators")


class TypeChange(MillstreamError):
    """A topic keeps the type it was created with."""

    status = 400
    err_code = 10058
    http_status = 409
    code = "topic_exists_incompatible"

    def __init__(self, topic: str, existing: str, requested: str) -> None:
        detail = {"topic": topic, "existing_type": existing, "requested_type": requested}
        super().__init__(f"{topic} is a {existing}; its type cannot change to {requested}", detail)


class StreamConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a stream can be told; the fields are JetStream's, in its units."""

    name: str = ""
    description: str = ""
    subjects: tuple[str, ...] = ()
    retention: str = "limits"
    max_consumers: int = -1
    max_msgs: int = -1
    max_bytes: int = -1
    max_age: int = 0
    max_msgs_per_subject: int = -1
    max_msg_size: int = -1
    discard: str = "old"
    storage: str = "file"
    num_replicas: int = 1
    no_ack: bool = False
    duplicate_window: int = DEFAULT_WINDOW_NS
    placement: dict[str, Any] | None = None
    mirror: dict[str, Any] | None = None
    sources: tuple[dict[str, Any], ...] = ()
    compression: str = "none"
    first_seq: int = 0
    subject_transform: dict[str, Any] | None = None
    republish: dict[str, Any] | None = None
    allow_direct: bool = False
    mirror_direct: bool = False
    discard_new_per_subject: bool = False
    sealed: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    allow_rollup_hdrs: bool = False
    consumer_limits: dict[str, int] = {}
    allow_msg_ttl: bool = False
    subject_delete_marker_ttl: int = 0
    allow_msg_counter: bool = False
    allow_atomic: bool = False
    allow_msg_schedules: bool = False
    persist_mode: str = ""
    allow_batched: bool = False
    metadata: dict[str, str] = {}

    @classmethod
    def from_request(
        cls, wire: Mapping[str, Any], existing: "StreamConfig | None" = None
    ) -> "StreamConfig":
        """Read a create or update request: defaults filled in, everything checked."""
        given = {key: value for key, value in wire.items() if value is not None}
        pedantic = given.pop("pedantic", False) is True
        given.pop("template_owner", None)
        if isinstance(given.get("sources"), list):  # null is a source without a name
            given["sources"] = [{} if one is None else one for one in given["sources"]]
        _check_counts(given)
        asked = _converted(given)
        config = _filled(asked, given, existing)
        sent = {**msgspec.structs.asdict(asked), "duplicate_window": given.get("duplicate_window")}
        _check(config, sent, pedantic=pedantic, is_update=existing is not None)
        return config

    @classmethod
    def from_topic(
        cls, name: str, config: Mapping[str, Any], existing: "StreamConfig | None" = None
    ) -> "StreamConfig":
        """Read an HTTP topic config; what HTTP cannot express stays as ``existing`` has it."""
        if not _TOPIC_NAME.fullmatch(name) and existing is None:
            raise BadRequest(
                "a topic name starts with a letter or digit and holds at most 255 of A-Za-z0-9._:-"
            )
        _check_counts(config)
        topic = _Topic.read(name, config)
        base = existing if existing is not None else cls(name=name)
        _check_type(name, topic, existing)
        ttl_ms = min(topic.ttl_ms, _MAX_TTL_MS)
        changed = msgspec.structs.replace(
            base,
            max_age=ttl_ms * 1_000_000,
            max_msgs=topic.cap_records or -1,
            max_bytes=topic.cap_bytes or -1,
            discard="new" if topic.discard == "reject" else "old",
            duplicate_window=min(topic.idempotency_window_ms, _MAX_TTL_MS) * 1_000_000,
            subjects=base.subjects if topic.subjects is None else tuple(topic.subjects),
            metadata=topic.metadata(base.metadata, made_here=existing is None),
        )
        _check_subjects(changed)
        return changed

    def to_request(self) -> dict[str, Any]:
        """Return the JetStream object as shown: absent what the reference leaves out."""
        shown = msgspec.to_builtins(self)
        for key in _OMITTED_WHEN_EMPTY:
            if not shown[key]:
                del shown[key]
        return dict(shown)

    def to_topic(self) -> dict[str, Any]:
        """Return the HTTP topic object: its 17 keys, and ``subjects`` and ``key`` where set."""
        durability = self.durability()
        shown: dict[str, Any] = {
            "type": self.metadata.get(_TYPE, "log"),
            "ttl_ms": self.max_age // 1_000_000,
            "cap_records": max(self.max_msgs, 0),
            "cap_bytes": max(self.max_bytes, 0),
            "discard": "reject" if self.discard == "new" else "old",
            "durable": durability is Durability.FSYNC,
            "durability": str(durability),
            "idempotency_window_ms": self.duplicate_window // 1_000_000,
        }
        for key, default in _TOPIC_ONLY.items():
            text = self.metadata.get(f"millstream.{key}")
            shown[key] = default if text is None else msgspec.json.decode(text)
        if self.subjects:
            shown["subjects"] = list(self.subjects)
        if KEY in self.metadata and shown["type"] == "queue":
            shown["key"] = self.metadata[KEY]
        return shown

    def durability(self, server_default: Durability = Durability.FSYNC) -> Durability:
        """Return what an ack of this stream means; ``server_default`` is the server's sync mode."""
        named = self.metadata.get(_DURABILITY)
        if named is not None:
            return Durability(named)
        if self.persist_mode == "async":
            return Durability.DISK
        if self.storage == "memory":
            return Durability.EPHEMERAL
        return server_default

    @property
    def required_level(self) -> int:
        """Return the JetStream API level that this configuration asks for."""
        if self.allow_batched:
            return 4
        if self.allow_msg_counter or self.allow_atomic or self.allow_msg_schedules:
            return 2
        if self.persist_mode == "async":
            return 2
        return 1 if self.allow_msg_ttl or self.subject_delete_marker_ttl else 0

    @property
    def is_compressed(self) -> bool:
        """Whether what is sealed is compressed; by LZ4, whatever the word is on the wire."""
        return self.compression != "none"

    def renamed(self) -> tuple[tuple[str, ...], list[str]]:
        """Return the subjects and streams whose records come out under other subjects."""
        renames = self.republish is not None or self.subject_transform is not None
        wires = [*self.sources, *([self.mirror] if self.mirror is not None else [])]
        renamed = [wire for wire in wires if renames or wire.get("subject_transforms")]
        origins = [sources.Source.read(wire).name for wire in renamed]
        if _DEAD_LETTER in self.metadata:  # a letter stands under the name of its topic
            return (*self.subjects, self.name), origins
        return self.subjects if renames else (), origins

    def published_to(self) -> tuple[str, ...]:
        """Return the subjects that the stream itself publishes to, as patterns."""
        if self.republish is None:
            return ()
        tokens = str(self.republish.get("dest", "")).split(".")
        return (".".join("*" if "{{" in token or "$" in token else token for token in tokens),)

    @property
    def is_legal_stream(self) -> bool:
        """Whether JetStream can name it: a topic called ``a.b`` is simply not listed there."""
        return _ILLEGAL_IN_NAMES.isdisjoint(self.name)

    def same_as(self, other: "StreamConfig") -> bool:
        """Whether both ask for the same stream, server-made metadata aside."""
        return msgspec.structs.replace(
            self, metadata=client_metadata(self.metadata)
        ) == msgspec.structs.replace(other, metadata=client_metadata(other.metadata))

    def as_sealed(self) -> "StreamConfig":
        """Return what a sealed stream is: nothing comes, nothing goes, nothing ages."""
        if not self.sealed:
            return self
        return msgspec.structs.replace(
            self,
            max_age=0,
            discard="new",
            deny_delete=True,
            deny_purge=True,
            allow_rollup_hdrs=False,
        )

    def check_update(self, new: "StreamConfig") -> None:
        """Refuse what a living stream cannot become."""
        for refused, why in (
            (
                new.storage != self.storage,
                "stream configuration update can not change storage type",
            ),
            (
                new.retention != self.retention and "workqueue" in (new.retention, self.retention),
                "stream configuration update can not change retention policy to/from workqueue",
            ),
            (
                self.sealed and not new.sealed,
                "stream configuration update can not unseal a sealed stream",
            ),
            (
                self.deny_delete and not new.deny_delete,
                "stream configuration update can not cancel deny message deletes",
            ),
            (
                self.deny_purge and not new.deny_purge,
                "stream configuration update can not cancel deny purge",
            ),
            (
                self.allow_msg_ttl and not new.allow_msg_ttl,
                "message TTL status can not be disabled",
            ),
            (
                new.allow_msg_counter != self.allow_msg_counter,
                "stream configuration update can not change message counter setting",
            ),
            (
                self.allow_msg_schedules and not new.allow_msg_schedules,
                "message schedules can not be disabled",
            ),
            (
                (new.persist_mode or "default") != (self.persist_mode or "default"),
                "stream configuration update can not change persist mode",
            ),
            (
                new.metadata.get(_TYPE, "log") != self.metadata.get(_TYPE, "log"),
                f"stream configuration update can not change {_TYPE} in its metadata",
            ),
        ):
            if refused:
                raise InvalidStreamConfig(why)
        if new.mirror is not None and new.mirror != self.mirror:
            raise feature_rules.FeatureRefused(
                10055, "stream mirror configuration can not be updated"
            )


_OMITTED_WHEN_EMPTY = (
    "description", "subjects", "no_ack", "duplicate_window", "placement", "mirror", "sources",
    "first_seq", "subject_transform", "republish", "discard_new_per_subject",
    "subject_delete_marker_ttl", "allow_msg_counter", "allow_atomic", "allow_msg_schedules",
    "persist_mode", "allow_batched", "metadata",
)  # fmt: skip

_TOPIC_ONLY: dict[str, Any] = {
    "priority": None,
    "auto_priority": True,
    "auto_create": True,
    "dedupe_node": True,
    "lease_ms": 30_000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "leases_durable": False,
}

_SERVER_METADATA = ("_nats.ver", "_nats.level", "_nats.req.level")


def client_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return metadata without what the server itself adds to answers."""
    return {key: value for key, value in metadata.items() if key not in _SERVER_METADATA}


def shown_metadata(metadata: Mapping[str, str], level: int, *, full: bool = True) -> dict[str, str]:
    """Return metadata as answers carry it, sorted; lists leave the server's version out."""
    shown = {**(client_metadata(metadata) if metadata else {}), "_nats.req.level": str(level)}
    if full:
        shown |= {"_nats.ver": SERVER_VERSION, "_nats.level": str(API_LEVEL)}
    return dict(sorted(shown.items()))


def _converted(given: dict[str, Any]) -> StreamConfig:
    for key in given:
        if key not in StreamConfig.__struct_fields__:
            raise InvalidJson(f'json: unknown field "{key}"')
    for key, known in _INNER_FIELDS.items():
        for inner in given[key] if isinstance(given.get(key), Mapping) else ():
            if inner not in known:
                raise InvalidJson(f'json: unknown field "{inner}"')
    for source in given.get("sources") or ():
        _check_source_fields(source)
    if "mirror" in given:
        _check_source_fields(given["mirror"])
    for key, words in _WORDS.items():
        if key in given and given[key] not in words:
            quoted = msgspec.json.encode(given[key]).decode().replace('"', '\\"')
            if key == "compression" and isinstance(given[key], str):
                raise InvalidJson("unknown compression algorithm")
            raise InvalidJson(f'can not unmarshal "{quoted}"')
    try:
        config = msgspec.convert(given, StreamConfig)
    except msgspec.ValidationError as error:
        raise InvalidJson(str(error)) from error
    check_ranges(config, {"first_seq": UNSIGNED, "max_msg_size": range(-(2**31), 2**31)})
    return config


UNSIGNED = range(2**64)
_SIGNED = range(-(2**63), 2**63)


def check_ranges(config: msgspec.Struct, others: Mapping[str, range]) -> None:
    """Refuse numbers that the reference has no room for; ``others`` are not of 64 bits, signed."""
    for key, allowed in others.items():
        if getattr(config, key) not in allowed:
            raise InvalidJson(f"{key} is out of range")
    for key, value in zip(config.__struct_fields__, msgspec.structs.astuple(config), strict=True):
        if type(value) is int and value not in _SIGNED and key not in others:
            raise InvalidJson(f"{key} is out of range")


def _check_source_fields(source: Any) -> None:
    if not isinstance(source, Mapping):
        raise InvalidJson("a source is an object")
    inner = [
        value for key in ("external", "consumer") if isinstance(value := source.get(key), dict)
    ]
    listed = source.get("subject_transforms")
    inner += [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    for key in chain(source, *inner):
        if key not in _SOURCE_FIELDS:
            raise InvalidJson(f'json: unknown field "{key}"')
    try:
        sources.Source.read(source)
    except msgspec.ValidationError as error:
        raise InvalidJson(str(error)) from error


_SOURCE_FIELDS = frozenset(
    (*sources.Source.__struct_fields__, "api", "deliver", "deliver_subject", "src", "dest")
)
_INNER_FIELDS = {
    "placement": ("cluster", "tags", "preferred"),
    "subject_transform": ("src", "dest"),
    "republish": ("src", "dest", "headers_only"),
    "consumer_limits": ("inactive_threshold", "max_ack_pending"),
}

_WORDS = {
    "retention": ("limits", "interest", "workqueue"),
    "discard": ("old", "new"),
    "storage": ("file", "memory"),
    "compression": ("none", "s2"),
    "persist_mode": ("", "default", "async"),
}


def _filled(
    config: StreamConfig, given: Mapping[str, Any], existing: StreamConfig | None
) -> StreamConfig:
    fill: dict[str, Any] = {
        key: -1
        for key in (
            "max_consumers",
            "max_msgs",
            "max_bytes",
            "max_msgs_per_subject",
            "max_msg_size",
        )
        if getattr(config, key) <= 0
    }
    if config.num_replicas == 0:
        fill["num_replicas"] = 1
    takes_subjects = config.mirror is None and not config.sources
    if not config.subjects and takes_subjects and not _captures_nothing(existing):
        fill["subjects"] = (config.name,)
    if not given.get("duplicate_window"):
        fill["duplicate_window"] = _default_window(config)
    if config.persist_mode == "default":
        fill["persist_mode"] = ""
    fill["sources"] = tuple({k: v for k, v in one.items() if v} for one in config.sources)
    if config.mirror is not None:
        fill["mirror"] = {k: v for k, v in config.mirror.items() if v}
    if config.placement is not None:
        fill["placement"] = {k: v for k, v in config.placement.items() if v}
    fill["consumer_limits"] = {k: v for k, v in config.consumer_limits.items() if v}
    if config.subject_transform is not None:
        fill["subject_transform"] = {"src": "", "dest": "", **config.subject_transform}
    if config.republish is not None:
        fill["republish"] = {"dest": "", **config.republish}
    fill["metadata"] = client_metadata(config.metadata)
    full = msgspec.structs.replace(config, **fill)
    return msgspec.structs.replace(full, **feature_rules.filled(msgspec.structs.asdict(full)))


def _captures_nothing(existing: StreamConfig | None) -> bool:
    """Whether a stream is a topic without subjects, as only HTTP makes them."""
    if existing is None or existing.subjects:
        return False
    return existing.mirror is None and not existing.sources


def _default_window(config: StreamConfig) -> int:
    if config.mirror is not None or config.sources:
        return 0
    return min(DEFAULT_WINDOW_NS, config.max_age) if config.max_age > 0 else DEFAULT_WINDOW_NS


def _check(
    config: StreamConfig, asked: Mapping[str, Any], *, pedantic: bool, is_update: bool
) -> None:
    """Refuse what could not work; in the reference's order, so that its answer is the same.

    ``asked`` are the fields as they were sent: a pedantic request is refused for what was
    filled in too.
    """
    sent = asked if pedantic else None
    _check_name(config)
    _refuse(
        (
            len(config.description.encode()) > MAX_DESCRIPTION,
            f"stream description is too long, maximum allowed is {MAX_DESCRIPTION}",
        ),
        (
            sum(len(k.encode()) + len(v.encode()) for k, v in config.metadata.items())
            > MAX_METADATA,
            f"stream metadata exceeds maximum size of {MAX_METADATA} bytes",
        ),
        (config.num_replicas > MAX_REPLICAS, f"maximum replicas is {MAX_REPLICAS}"),
    )
    if config.num_replicas < 0:
        raise feature_rules.FeatureRefused(10133, "replicas count cannot be negative")
    if sent is not None:
        feature_rules.check_unlimited(sent)
    _check_limits(config, sent)
    fields = msgspec.structs.asdict(config)
    if fields["allow_msg_counter"]:
        feature_rules.check_counter({**fields, "allow_msg_ttl": asked["allow_msg_ttl"]})
    feature_rules.check_features(fields, sent)
    feature_rules.check_mirror(fields)
    if config.mirror is not None:
        sources.check_mirror(config.mirror)
    if config.sources and config.allow_msg_schedules:
        raise feature_rules.FeatureRefused(10187, "stream source can not also schedule messages")
    sources.check(config.sources)
    _check_subjects(config)
    feature_rules.check_subjects(fields, sent)
    if is_update and config.allow_msg_counter:  # a new stream may: delete markers bring TTLs later
        feature_rules.check_counter(fields)
    if config.num_replicas > 1:
        raise ReplicasUnsupported()
    named = config.metadata.get(_DURABILITY)
    _refuse(
        (
            named is not None and named not in list(Durability),
            f"metadata {_DURABILITY} is one of ephemeral, memory, disk, fsync",
        ),
    )


def _check_name(config: StreamConfig) -> None:
    _refuse(
        (
            len(config.name) > MAX_NAME,
            f"stream name is too long, maximum allowed is {MAX_NAME}",
        ),
        (
            not config.name or not _ILLEGAL_IN_NAMES.isdisjoint(config.name),
            "stream name is required and can not contain '.', '*', '>', '\\', '/'",
        ),
    )


def _check_limits(config: StreamConfig, sent: Mapping[str, Any] | None) -> None:
    window, age = config.duplicate_window, config.max_age
    _refuse(
        (age < 0, "max age can not be negative"),
        (0 < age < SHORTEST_NS, "max age needs to be >= 100ms"),
    )
    if sent is not None:
        feature_rules.check_window(sent)
    _refuse(
        (window < 0, "duplicates window can not be negative"),
        (0 < age < window, "duplicates window can not be larger then max age"),
        (0 < window < SHORTEST_NS, "duplicates window needs to be >= 100ms"),
        (
            # Delete markers bring roll-ups, and take the denial of purges back.
            config.allow_rollup_hdrs and config.deny_purge,
            "roll-ups require the purge permission",
        ),
    )


_RESERVED = (
    ("$JS.>", "$JS.EVENT.>", "subjects that overlap with jetstream api require no-ack to be true"),
    ("$JSC.>", "", "subjects that overlap with jetstream api require no-ack to be true"),
    ("$NRG.>", "", "subjects that overlap with jetstream api require no-ack to be true"),
    ("$SYS.>", "$SYS.ACCOUNT.>", "subjects that overlap with system api require no-ack to be true"),
)


_MAY_BE_RESERVED = ("$", "*", ">")


def _check_counts(given: Mapping[str, Any]) -> None:
    """Refuse lists that are too long before anything is made of them."""
    subjects, feeds = given.get("subjects"), given.get("sources")
    if isinstance(subjects, list):
        TooManySubjects.check("subjects of a stream", len(subjects), MAX_SUBJECTS)
    if isinstance(feeds, list):
        sources.check_count(len(feeds))


def _check_subjects(config: StreamConfig) -> None:
    _check_lengths(config.subjects)
    clashing = first_overlapping(config.subjects)
    illegal = next((at for at, one in enumerate(config.subjects) if not is_pattern(one)), None)
    for at, subject in enumerate(config.subjects):
        if at == illegal:
            raise InvalidStreamConfig("invalid subject")
        if subject == ">":
            _refuse(
                (not config.no_ack, "capturing all subjects requires no-ack to be true"),
                (config.num_replicas != 1, "capturing all subjects requires replicas of 1"),
            )
        if subject.startswith(_MAY_BE_RESERVED) and not config.no_ack:
            _check_reserved(subject)
        if at == clashing:
            other = next(other for other in config.subjects[at + 1 :] if overlap(subject, other))
            _refuse((True, f'subject "{subject}" overlaps with "{other}"'))


def _check_lengths(subjects: Iterable[str]) -> None:
    longest = max(map(len, subjects), default=0)  # a character has four bytes at most
    too_long = longest * 4 > LONGEST_SUBJECT and any(
        len(subject.encode()) > LONGEST_SUBJECT for subject in subjects
    )
    _refuse((too_long, f"a subject is longer than {LONGEST_SUBJECT} bytes"))


def _check_reserved(subject: str) -> None:
    for space, allowed, why in _RESERVED:
        harmless = bool(allowed) and is_subset(subject, allowed)
        _refuse((overlap(subject, space) and not harmless, why))


def _refuse(*checks: tuple[bool, str]) -> None:
    for refused, why in checks:
        if refused:
            raise InvalidStreamConfig(why)


class _Topic(msgspec.Struct, kw_only=True):
    """The HTTP face as it is sent; unknown fields are ignored, as that contract says."""

    type: str = "log"
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: str = "old"
    durable: bool | None = None
    durability: str | None = None
    priority: int | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: int = 120_000
    dedupe_node: bool = True
    lease_ms: int = 30_000
    claim_jitter_ms: int = 0
    max_deliveries: int = 0
    dead_letter: str | None = None
    leases_durable: bool = False
    subjects: list[str] | None = None
    key: str | None = None

    @classmethod
    def read(cls, name: str, config: Mapping[str, Any]) -> Self:
        """Check every value and bring leases into their range."""
        try:
            topic = msgspec.convert({k: v for k, v in config.items() if v is not None}, cls)
        except msgspec.ValidationError as error:
            raise BadRequest(f"topic config: {error}") from error
        topic._check(name)
        topic.lease_ms = min(max(topic.lease_ms, 100), 86_400_000)
        topic.claim_jitter_ms = min(topic.claim_jitter_ms, 5000)
        return topic

    def _check(self, name: str) -> None:
        for key in _COUNTS:
            if not 0 <= getattr(self, key) <= _U64:
                raise BadRequest(f"topic config: {key} is an unsigned 64-bit number")
        if self.priority is not None and not -(2**31) <= self.priority < 2**31:
            raise BadRequest("topic config: priority is a signed 32-bit number")
        for key, words in (
            ("type", ("log", "queue")),
            ("discard", ("old", "reject")),
            ("durability", (None, *Durability)),
        ):
            if getattr(self, key) not in words:
                raise BadRequest(f"topic config: {key} is none of {', '.join(filter(None, words))}")
        if self.dead_letter is not None and not _TOPIC_NAME.fullmatch(self.dead_letter):
            raise BadRequest("topic config: dead_letter must be a topic name")
        if self.type == "queue" and self.dead_letter == name:
            raise BadRequest("topic config: dead_letter must differ from the queue itself")
        if self.key is not None:
            self._check_key(self.key)

    def _check_key(self, key: str) -> None:
        if self.type != "queue":
            raise BadRequest("topic config: only a queue has a key")
        try:
            RecordKey.read(key)
        except ValueError as error:
            raise BadRequest(f"topic config: {error}") from error

    def metadata(self, before: Mapping[str, str], *, made_here: bool) -> dict[str, str]:
        """Return the stream's metadata with this topic's fields in it."""
        own = {KEY, *(f"millstream.{key}" for key in _TOPIC_ONLY)}
        kept = {k: v for k, v in before.items() if k not in own}
        if self.key is not None:
            kept[KEY] = self.key
        if made_here:
            kept[_TYPE] = self.type
        kept = self._with_durability(kept)
        for key, default in _TOPIC_ONLY.items():
            value = getattr(self, key)
            if value != default:
                kept[f"millstream.{key}"] = msgspec.json.encode(value).decode()
        return kept

    def _with_durability(self, metadata: dict[str, str]) -> dict[str, str]:
        if self.durability is not None:
            chosen = self.durability
        elif self.durable is not None:
            chosen = "fsync" if self.durable else "disk"
        elif _TYPE in metadata:  # made over HTTP, where an omitted class is the default again
            chosen = "disk"
        else:
            return metadata
        return {**metadata, _DURABILITY: chosen}


TOPIC_FIELDS = frozenset(_Topic.__struct_fields__)


_COUNTS = (
    "ttl_ms", "cap_records", "cap_bytes", "idempotency_window_ms", "lease_ms", "claim_jitter_ms",
    "max_deliveries",
)  # fmt: skip


def _check_type(name: str, topic: _Topic, existing: StreamConfig | None) -> None:
    if existing is None:
        return
    before = existing.metadata.get(_TYPE, "log")
    if before != topic.type:
        raise TypeChange(name, before, topic.type)


_COMMON = ("retention", "discard", "storage", "compression", "persist_mode")


def shared_words(config: StreamConfig) -> StreamConfig:
    """Have a configuration share the words that many say, instead of keeping its own."""
    for name in _COMMON:
        msgspec.structs.force_setattr(config, name, sys.intern(getattr(config, name)))
    return config
