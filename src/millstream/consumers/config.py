"""ConsumerConfig: what a consumer can be told; defaults, validation and legal updates."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from millstream.consumers.ledger import RedeliveryPolicy
from millstream.delivery.record_key import KEY, RecordKey
from millstream.errors import InvalidStreamConfig, MillstreamError, TooManyFilters
from millstream.streams.config.config import (
    UNSIGNED,
    InvalidJson,
    ReplicasUnsupported,
    StreamConfig,
    check_ranges,
    client_metadata,
)
from millstream.streams.config.times import ZERO_TIME, time_ns
from millstream.streams.config.times import go_text as go_text
from millstream.subjects.pattern_set import LONGEST_SUBJECT, first_covered
from millstream.subjects.subject import has_wildcard, is_literal, is_pattern, overlap
from millstream.wire.go_syntax import quoted

ACK_WAIT_NS = 30_000_000_000
MAX_WAITING = 512
MAX_FILTERS = 10_000
MAX_ACK_PENDING = 1000
EPHEMERAL_THRESHOLD_NS = 5_000_000_000
PIN_TIMEOUT_NS = 120_000_000_000
FLOW_HEARTBEAT_NS = 1_000_000_000  # of consumers whose acks are answers to flow control
SHORTEST_HEARTBEAT_NS = 100_000_000
SHORTEST_EXPIRY_NS = 1_000_000
MAX_NAME = 255
MAX_DESCRIPTION = 4096
MAX_METADATA = 128 * 1024
DEAD_LETTER = "millstream.dead_letter"  # in metadata: a stream, a topic, or a subject of a stream

_ILLEGAL_IN_NAMES = frozenset(" \t\r\n\f.*>\\/\0")
_NUMBER = re.compile(r"[+-]?[0-9]+")
_GROUP = re.compile(r"[A-Za-z0-9/_=-]{1,16}")


class ConsumerRefused(MillstreamError):
    """A consumer that could not work, or may not change that way; JetStream's code says which."""

    http_status = 400
    code = "invalid_request"

    def __init__(self, err_code: int, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status  # type: ignore[misc]
        self.err_code = err_code  # type: ignore[misc]


class ConsumerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields are JetStream's, in its units."""

    durable_name: str = ""
    name: str = ""
    description: str = ""
    deliver_policy: str = "all"
    opt_start_seq: int = 0
    opt_start_time: str = ""
    ack_policy: str = "none"
    ack_wait: int = 0
    max_deliver: int = -1
    backoff: tuple[int, ...] = ()
    filter_subject: str = ""
    filter_subjects: tuple[str, ...] = ()
    replay_policy: str = "instant"
    rate_limit_bps: int = 0
    sample_freq: str = ""
    max_waiting: int = 0
    max_ack_pending: int = 0
    flow_control: bool = False
    headers_only: bool = False
    max_batch: int = 0
    max_expires: int = 0
    max_bytes: int = 0
    deliver_subject: str = ""
    deliver_group: str = ""
    idle_heartbeat: int = 0
    inactive_threshold: int = 0
    num_replicas: int = 0
    mem_storage: bool = False
    direct: bool = False
    sourcing: bool = False
    pause_until: str = ""
    priority_groups: tuple[str, ...] = ()
    priority_policy: str = ""
    priority_timeout: int = 0
    metadata: dict[str, str] = {}

    @classmethod
    def from_request(
        cls, wire: Mapping[str, Any], stream: StreamConfig, *, pedantic: bool = False
    ) -> "ConsumerConfig":
        """Read a create request: defaults filled in, everything checked.

        ``pedantic`` refuses what would otherwise be filled in or set right. The checks are in
        the reference's order, so that its answer is the same.
        """
        _check_count(wire)
        asked = _converted(wire)
        if asked.num_replicas > 1:
            raise ReplicasUnsupported()
        if pedantic:
            _check_pedantic(asked, stream)
        config = _filled(asked, stream, pedantic=pedantic)
        _check_assets(config)
        _check_answers(config)
        _check_mode(config, stream)
        _check_caps(config, stream)
        _check_direct(config)
        _check_filters(config)
        _check_start(config)
        _check_sampling(config)
        _check_rest(config)
        _check_priorities(config)
        _check_durable_name(config)
        _check_own(config, stream)
        return config

    def to_request(self) -> dict[str, Any]:
        """Return the JetStream object, without what the reference leaves out when empty."""
        shown = msgspec.to_builtins(self)
        return {key: value for key, value in shown.items() if value or key in _ALWAYS}

    @property
    def filters(self) -> tuple[str, ...]:
        """Return the patterns that a message must match one of; none let everything pass."""
        return self.filter_subjects or ((self.filter_subject,) if self.filter_subject else ())

    @property
    def is_internal(self) -> bool:
        """Whether it is a mirror's or source's: it takes copies, shares and counts for nothing."""
        return self.direct or self.sourcing

    @property
    def redelivery(self) -> RedeliveryPolicy:
        """Return when and how often what is not answered is delivered again."""
        waits = tuple(wait / 1e9 for wait in self.backoff)
        return RedeliveryPolicy(
            self.ack_wait / 1e9, waits, self.max_deliver, keeps_letters=bool(self.dead_letter)
        )

    @property
    def dead_letter(self) -> str:
        """Return where letters are kept of records that are given up; empty: nowhere."""
        return self.metadata.get(DEAD_LETTER, "")

    @property
    def record_key(self) -> RecordKey | None:
        """Return where the key is whose records go one by one, None where order is not kept."""
        text = self.metadata.get(KEY, "")
        try:
            return RecordKey.read(text) if text else None
        except ValueError:  # written down by another version
            return None

    @property
    def is_persisted(self) -> bool:
        """Whether the consumer outlives a restart."""
        return not self.mem_storage and not self.direct

    @property
    def is_push(self) -> bool:
        """Whether messages go to a fixed subject instead of to whoever asks."""
        return bool(self.deliver_subject)

    @property
    def required_level(self) -> int:
        """Return the API level that this configuration needs."""
        if self.ack_policy == "flow_control":
            return 4
        return 1 if self.pause_until or self.priority_policy else 0

    @property
    def sample_percent(self) -> int:
        """Return how many acks of a hundred are measured."""
        return int(self.sample_freq.removesuffix("%") or 0)

    def stamped(self, *, durable: bool) -> "ConsumerConfig":
        """Return it as it is kept: a consumer that is not durable always ends by itself."""
        if durable or self.inactive_threshold > 0:
            return self
        return msgspec.structs.replace(self, inactive_threshold=EPHEMERAL_THRESHOLD_NS)

    def same_as(self, other: "ConsumerConfig") -> bool:
        """Whether both ask for the same consumer."""
        return self.without_pause() == other.without_pause()

    def without_pause(self) -> "ConsumerConfig":
        """Return the rest: only its own request pauses a consumer that exists."""
        return msgspec.structs.replace(self, pause_until="")

    def check_update(self, new: "ConsumerConfig", *, is_heard: bool) -> None:
        """Refuse what a living consumer cannot become; ``is_heard``: somebody listens to it."""
        for key, what in _FIXED.items():
            if getattr(self, key) != getattr(new, key):
                raise ConsumerRefused(10012, f"{what} can not be updated", 500)
        if self.is_push != new.is_push:
            change = "push consumer to pull" if self.is_push else "pull consumer to push"
            raise ConsumerRefused(10012, f"can not update {change} based", 500)
        if is_heard and self.deliver_subject != new.deliver_subject:
            raise ConsumerRefused(10013, "consumer name already in use")
        if self.max_waiting != new.max_waiting:
            raise ConsumerRefused(10012, "max waiting can not be updated", 500)


_ALWAYS = frozenset(
    ("deliver_policy", "ack_policy", "max_deliver", "replay_policy", "num_replicas")
)

_FIXED = {
    "deliver_policy": "deliver policy",
    "mem_storage": "storage type",
    "direct": "direct",
    "sourcing": "sourcing",
    "opt_start_seq": "start sequence",
    "opt_start_time": "start time",
    "ack_policy": "ack policy",
    "replay_policy": "replay policy",
    "idle_heartbeat": "heart beats",
    "flow_control": "flow control",
}

_WORDS = {
    "deliver_policy": (
        "all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject",
    ),
    "ack_policy": ("none", "all", "explicit", "flow_control"),
    "replay_policy": ("instant", "original"),
    "priority_policy": ("", "none", "overflow", "pinned_client", "prioritized"),
}  # fmt: skip


def check_known(wire: Mapping[str, Any]) -> None:
    """Refuse a request with fields that a consumer does not have."""
    for key in wire:
        if key not in ConsumerConfig.__struct_fields__:
            raise InvalidJson(f'json: unknown field "{key}"')


def _converted(wire: Mapping[str, Any]) -> ConsumerConfig:
    given = {key: value for key, value in wire.items() if value is not None}
    check_known(given)
    for key, words in _WORDS.items():
        if key in given and given[key] not in words:
            quoted = msgspec.json.encode(given[key]).decode()
            if key == "priority_policy":
                raise InvalidJson(f"unknown priority policy: {quoted}")
            quoted = quoted.replace('"', '\\"')
            raise InvalidJson(f'can not unmarshal "{quoted}"')
    try:
        config = msgspec.convert(given, ConsumerConfig)
    except msgspec.ValidationError as error:
        raise InvalidJson(str(error)) from error
    check_ranges(config, {"opt_start_seq": UNSIGNED, "rate_limit_bps": UNSIGNED})
    for time in (config.opt_start_time, config.pause_until):
        if time:
            time_ns(time)
    return config


_NEVER_NEGATIVE = (
    "max_waiting", "max_batch", "max_expires", "max_bytes", "idle_heartbeat",
    "inactive_threshold", "priority_timeout",
)  # fmt: skip


def _check_pedantic(config: ConsumerConfig, stream: StreamConfig) -> None:
    """Refuse what would otherwise be set right."""
    limits = stream.consumer_limits
    for refused, why in (
        (config.max_deliver < -1, "max_deliver must be set to -1"),
        (config.max_waiting < 0, "max_waiting must not be negative"),
        (config.max_ack_pending < -1, "max_ack_pending must be set to -1"),
        *((getattr(config, key) < 0, f"{key} must not be negative") for key in _NEVER_NEGATIVE),
        (
            bool(config.backoff) and _waited(config) != config.backoff[0],
            "first backoff value has to equal batch AckWait",
        ),
        (
            config.max_ack_pending == 0 and limits.get("max_ack_pending", 0) > 0,
            "max_ack_pending must be set if it's configured in stream limits",
        ),
        (
            config.inactive_threshold == 0 and limits.get("inactive_threshold", 0) > 0,
            "inactive_threshold must be set if it's configured in stream limits",
        ),
    ):
        if refused:
            raise ConsumerRefused(10157, f"pedantic mode: {why}")


def _waited(config: ConsumerConfig) -> int:
    if config.ack_wait == 0 and config.ack_policy in ("explicit", "all"):
        return ACK_WAIT_NS
    return config.ack_wait


def _filled(config: ConsumerConfig, stream: StreamConfig, *, pedantic: bool) -> ConsumerConfig:
    limits = stream.consumer_limits
    fill: dict[str, Any] = {"metadata": client_metadata(config.metadata)}
    fill |= {key: 0 for key in _NEVER_NEGATIVE if getattr(config, key) < 0}
    if config.durable_name and not config.name:
        fill["name"] = config.durable_name
    if config.max_deliver == 0 or config.max_deliver < -1:
        fill["max_deliver"] = -1
    if config.max_ack_pending < -1:
        fill["max_ack_pending"] = -1
    if not config.is_push and config.max_waiting <= 0:
        fill["max_waiting"] = MAX_WAITING
    fill["ack_wait"] = config.backoff[0] if config.backoff else _waited(config)
    if config.max_ack_pending == 0:
        default = MAX_ACK_PENDING if config.ack_policy != "none" else 0
        fill["max_ack_pending"] = limits.get("max_ack_pending", 0) or default
    if config.inactive_threshold <= 0:
        fill["inactive_threshold"] = limits.get("inactive_threshold", 0)
    if config.priority_policy == "none":
        fill["priority_policy"] = ""
    if config.priority_policy == "pinned_client" and config.priority_timeout <= 0:
        fill["priority_timeout"] = PIN_TIMEOUT_NS
    if config.ack_policy == "flow_control" and not pedantic:
        fill |= {"flow_control": True, "idle_heartbeat": FLOW_HEARTBEAT_NS}
    if config.pause_until:
        fill["pause_until"] = "" if config.pause_until == ZERO_TIME else config.pause_until
    return msgspec.structs.replace(config, **fill)


def _check_assets(config: ConsumerConfig) -> None:
    """Refuse names that no consumer can have, and replicas that there are none of."""
    for what, name in (("name", config.name), ("durable name", config.durable_name)):
        if not _ILLEGAL_IN_NAMES.isdisjoint(name):
            raise InvalidStreamConfig(f"consumer {what} can not contain '.', '*', '>', '\\', '/'")
    if config.num_replicas < 0:
        raise ConsumerRefused(10133, "replicas count cannot be negative")


def _check_answers(config: ConsumerConfig) -> None:
    if any(wait < 0 for wait in config.backoff):
        raise ConsumerRefused(10184, "consumer backoff needs to be positive")
    if config.ack_wait < 0:
        raise ConsumerRefused(10183, "consumer ack wait needs to be positive")
    if config.ack_policy == "flow_control":
        _check_flow_acks(config)
    if config.max_deliver != -1 and len(config.backoff) > config.max_deliver:
        raise ConsumerRefused(10116, "max deliver is required to be > length of backoff values")
    if len(config.description.encode()) > MAX_DESCRIPTION:
        raise ConsumerRefused(
            10107, f"consumer description is too long, maximum allowed is {MAX_DESCRIPTION}"
        )


def _check_flow_acks(config: ConsumerConfig) -> None:
    """Answers to flow control are the acks: there must be such requests, and no other waits."""
    policy = "flow control ack policy"
    if not config.is_push:
        raise ConsumerRefused(10218, f"{policy} requires a push based consumer")
    if not config.flow_control:
        raise ConsumerRefused(10219, f"{policy} requires flow control")
    if config.idle_heartbeat != FLOW_HEARTBEAT_NS:
        raise InvalidStreamConfig(f"{policy} heartbeat needs to be 1s")
    if config.max_ack_pending <= 0:
        raise ConsumerRefused(10220, f"{policy} requires max ack pending")
    if config.ack_wait or config.backoff:
        raise ConsumerRefused(10221, f"{policy} requires unset ack wait")
    if config.max_deliver > 0:
        raise ConsumerRefused(10222, f"{policy} requires unset max deliver")


def _check_direct(config: ConsumerConfig) -> None:
    if config.direct and not config.is_push:
        raise ConsumerRefused(10090, "consumer direct requires a push based consumer")
    if config.direct and config.durable_name:
        raise ConsumerRefused(10091, "consumer direct requires an ephemeral consumer")


def _check_rest(config: ConsumerConfig) -> None:
    if config.flow_control and not config.idle_heartbeat:
        raise ConsumerRefused(10108, "consumer with flow control also needs heartbeats")
    if config.durable_name and config.name and config.name != config.durable_name:
        raise ConsumerRefused(
            10132, "Consumer Durable and Name have to be equal if both are provided"
        )
    if sum(len(k.encode()) + len(v.encode()) for k, v in config.metadata.items()) > MAX_METADATA:
        raise ConsumerRefused(10135, "consumer metadata exceeds maximum size of 128KB")


def _check_own(config: ConsumerConfig, stream: StreamConfig) -> None:
    """Refuse dead letters and keys that could not be kept to."""
    letters, key = config.dead_letter, config.metadata.get(KEY, "")
    if key and config.ack_policy != "explicit":
        raise ConsumerRefused(10012, f"metadata {KEY} requires the explicit ack policy")
    if letters and config.ack_policy not in ("explicit", "all"):
        raise ConsumerRefused(10012, f"metadata {DEAD_LETTER} requires acks")
    if letters and letters == stream.name:
        raise ConsumerRefused(10012, f"metadata {DEAD_LETTER} must name another stream")
    if letters and (not is_literal(letters) or len(letters) > MAX_NAME):
        raise ConsumerRefused(10012, f"metadata {DEAD_LETTER} is no stream or subject: {letters!r}")
    if key:
        try:
            RecordKey.read(key)
        except ValueError as error:
            raise ConsumerRefused(10012, f"metadata {KEY}: {error}") from error


def _check_durable_name(config: ConsumerConfig) -> None:
    if len(config.name) > MAX_NAME:
        raise ConsumerRefused(10102, f"consumer name is too long, maximum allowed is {MAX_NAME}")


def _check_priorities(config: ConsumerConfig) -> None:
    if not config.priority_policy:
        if config.priority_groups:
            raise ConsumerRefused(
                10196, "consumer can not have priority groups when policy is none"
            )
        if config.priority_timeout:
            raise ConsumerRefused(10197, "PinnedTTL cannot be set when PriorityPolicy is none")
        return
    if config.is_push:
        raise ConsumerRefused(10178, "priority groups can not be used with push consumers")
    if not config.priority_groups:
        raise ConsumerRefused(
            10159, "Setting PriorityPolicy requires at least one PriorityGroup to be set"
        )
    for group in config.priority_groups:
        if not group:
            raise ConsumerRefused(10161, "Group name cannot be an empty string")
        check_group_name(group)


def check_group_name(group: str) -> None:
    """Refuse a name that no priority group can have."""
    if not _GROUP.fullmatch(group):
        raise ConsumerRefused(
            10162,
            "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ "
            "and may not exceed 16 characters",
        )


def _check_caps(config: ConsumerConfig, stream: StreamConfig) -> None:
    """Keep within what the stream allows its consumers."""
    most = stream.consumer_limits.get("max_ack_pending", 0)
    if 0 < most < config.max_ack_pending:
        raise ConsumerRefused(10121, f"consumer max ack pending exceeds system limit of {most}")
    longest = stream.consumer_limits.get("inactive_threshold", 0)
    if 0 < longest < config.inactive_threshold:
        raise ConsumerRefused(
            10153, f"consumer inactive threshold exceeds system limit of {go_text(longest)}"
        )


def _check_sampling(config: ConsumerConfig) -> None:
    if not config.sample_freq:
        return
    text = config.sample_freq.removesuffix("%")
    why = f"strconv.Atoi: parsing {quoted(text)}: invalid syntax"
    if _NUMBER.fullmatch(text):
        if int(text) >= 0:
            return
        why = "<nil>"  # Go's word for no error: it was read, and is below zero
    raise ConsumerRefused(10095, f"failed to parse consumer sampling configuration: {why}")


def _check_mode(config: ConsumerConfig, stream: StreamConfig) -> None:
    if config.is_push:
        _check_push(config, stream)
        return
    if config.ack_policy == "none" and stream.retention == "workqueue":
        raise ConsumerRefused(
            10084, "consumer in pull mode requires explicit ack policy on workqueue stream"
        )
    if config.rate_limit_bps:
        raise ConsumerRefused(10086, "consumer in pull mode can not have rate limit set")
    if config.idle_heartbeat:
        raise ConsumerRefused(10088, "consumer idle heartbeat requires a push based consumer")
    if config.flow_control:
        raise ConsumerRefused(10089, "consumer flow control requires a push based consumer")
    if 0 < config.max_expires < SHORTEST_EXPIRY_NS:
        raise ConsumerRefused(10115, "consumer max request expires needs to be >= 1ms")


def _check_push(config: ConsumerConfig, stream: StreamConfig) -> None:
    subject = config.deliver_subject
    if has_wildcard(subject):
        raise ConsumerRefused(10079, "consumer deliver subject has wildcards")
    if not is_pattern(subject):
        raise ConsumerRefused(10112, "invalid push consumer deliver subject")
    if any(overlap(subject, captured) for captured in stream.subjects):
        raise ConsumerRefused(10081, "consumer deliver subject forms a cycle")
    if config.max_waiting:
        raise ConsumerRefused(10080, "consumer in push mode can not set max waiting")
    if config.max_ack_pending > 0 and config.ack_policy == "none":
        raise ConsumerRefused(10082, "consumer requires ack policy for max ack pending")
    if 0 < config.idle_heartbeat < SHORTEST_HEARTBEAT_NS:
        raise ConsumerRefused(10083, "consumer idle heartbeat needs to be >= 100ms")


_POLICY_TEXT = {
    "all": "deliver all",
    "last": "deliver last",
    "new": "deliver new",
    "by_start_sequence": "deliver by start sequence",
    "by_start_time": "deliver by start time",
    "last_per_subject": "deliver last per subject",
}


def _check_start(config: ConsumerConfig) -> None:
    policy = config.deliver_policy

    def conflict(what: str, state: str) -> ConsumerRefused:
        text = f"consumer delivery policy is {_POLICY_TEXT[policy]}, but optional"
        return ConsumerRefused(10094, f"{text} {what} is {state} set")

    if policy == "by_start_sequence" and not config.opt_start_seq:
        raise conflict("start sequence", "not")
    if policy == "by_start_time" and not config.opt_start_time:
        raise conflict("start time", "not")
    if policy == "by_start_time" and config.opt_start_seq:
        raise conflict("start start sequence", "also")  # the reference's very words
    if policy != "by_start_sequence" and config.opt_start_seq:
        raise conflict("start sequence", "also")
    if policy != "by_start_time" and config.opt_start_time:
        raise conflict("start time", "also")
    if policy == "last_per_subject" and not (config.filter_subject or config.filter_subjects):
        raise conflict("filter subject", "not")


def _check_count(wire: Mapping[str, Any]) -> None:
    """Refuse a list that is too long before anything is made of it."""
    filters = wire.get("filter_subjects")
    if isinstance(filters, list):
        TooManyFilters.check("filter subjects of a consumer", len(filters), MAX_FILTERS)


def _check_filters(config: ConsumerConfig) -> None:
    if config.filter_subject and config.filter_subjects:
        raise ConsumerRefused(
            10136, "consumer cannot have both FilterSubject and FilterSubjects specified"
        )
    filters = config.filters
    if "" in filters:
        raise ConsumerRefused(10139, "consumer filter in FilterSubjects cannot be empty")
    if any(len(one.encode()) > LONGEST_SUBJECT for one in filters):
        raise InvalidStreamConfig(f"a filter subject is longer than {LONGEST_SUBJECT} bytes")
    covered = first_covered(filters) if len(filters) > 1 else None
    for at, one in enumerate(filters):
        if not is_pattern(one):
            raise InvalidStreamConfig("invalid subject")
        if at == covered:
            raise ConsumerRefused(10138, "consumer subject filters cannot overlap")
