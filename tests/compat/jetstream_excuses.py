"""What the comparison of JetStream sessions excuses, each for a reason that is written down.

docs/reference/compatibility.md names the reasons. An excuse holds only where the session gives an
occasion for it, and takes over no more than what the reference is known to show there.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from millstream.consumers.answers import DROPPED

if TYPE_CHECKING:
    from compat.jetstream_sessions import Session

EPHEMERAL_NS = 5 * 10**9
SHORT_NS = 10**6
SECOND_NS = 10**9
LIMITS = (b'"max_msgs"', b'"max_msgs_per_subject"', b'"max_bytes"')
GIVEN_UP = "CONSUMER.MAX_DELIVERIES."
UPDATE = "$JS.API.STREAM.UPDATE."
# By stream and consumer, the records that went under each consumer sequence.
Deliveries: TypeAlias = dict[tuple[str, str], dict[int, set[int]]]


@dataclass(frozen=True, slots=True)
class Occasions:
    """What a session does that the two servers may answer differently."""

    cuts: bool = False  # a purge leaves records
    purges: bool = False  # by filter
    acks_all: bool = False
    refiltered: frozenset[str] = frozenset()
    give_up: frozenset[str] = frozenset()
    hasty: frozenset[str] = frozenset()
    early: frozenset[str] = frozenset()
    rolls_up_full: bool = False

    @classmethod
    def of(cls, session: Session) -> Occasions:
        """Return what this session does."""
        return cls(
            purges_partly(session),
            purges_by_filter(session),
            any(b'"ack_policy": "all"' in step.body for step in session.steps),
            refiltered(session),
            giving_up(session),
            hasty(session),
            early(session),
            rolls_up(session, "sub", "all") and is_limited(session),
        )


def purges_by_filter(session: Session) -> bool:
    """Whether records of some subjects are purged; a roll-up of one is such a purge."""
    purges = any("PURGE" in step.subject and b"filter" in step.body for step in session.steps)
    return purges or rolls_up(session, "sub")


def purges_partly(session: Session) -> bool:
    """Whether a purge leaves records, as a roll-up does."""
    purges = any("PURGE" in step.subject and step.body for step in session.steps)
    return purges or rolls_up(session, "sub", "all")


def rolls_up(session: Session, *kinds: str) -> bool:
    """Whether a stream that allows roll-ups may get one of these kinds."""
    allow = (b'"allow_rollup_hdrs": true', b'"subject_delete_marker_ttl"')
    return any(word in step.body for step in session.steps for word in allow) and any(
        name == "Nats-Rollup" and kind.lower() in kinds
        for step in session.steps
        for name, kind in step.headers
    )


def refiltered(session: Session) -> frozenset[str]:
    """Return the consumers that are asked for with filters, and asked for again with others."""
    asked: dict[tuple[str, str], set[str]] = {}
    for stream, config in asked_consumers(session):
        filters = json.dumps([config.get("filter_subject"), config.get("filter_subjects")])
        asked.setdefault((stream, name_of(config)), set()).add(filters)
    return frozenset(name for (_, name), filters in asked.items() if len(filters) > 1)


def giving_up(session: Session) -> frozenset[str]:
    """Return the consumers that are asked to deliver only so often, at one time or another."""
    asked = [config for _, config in asked_consumers(session)]
    return frozenset(name_of(config) for config in asked if config.get("max_deliver", 0) > 0)


def hasty(session: Session) -> frozenset[str]:
    """Return the consumers whose wait for acks is over before an update of their stream is."""
    waits = asked_consumers(session)
    updated = {step.subject.rpartition(".")[2] for step in session.steps if UPDATE in step.subject}
    return frozenset(
        name_of(config)
        for stream, config in waits
        if stream in updated and 0 < config.get("ack_wait", 0) < SHORT_NS
    )


def early(session: Session) -> frozenset[str]:
    """Return the consumers whose last delivery we give up at once, the reference at a pull."""
    return frozenset(
        name_of(config)
        for _, config in asked_consumers(session)
        if config.get("max_deliver", 0) > 1 and 0 < config.get("ack_wait", 0) < SECOND_NS
    )


def is_limited(session: Session) -> bool:
    """Whether a stream may be full."""
    return any(word in step.body for step in session.steps for word in LIMITS)


def name_of(config: dict[str, Any]) -> str:
    return str(config.get("name") or config.get("durable_name") or "GENERATED")


def asked_consumers(session: Session) -> list[tuple[str, dict[str, Any]]]:
    """Return the stream and the configuration of each consumer that is asked for."""
    makes = re.compile(r"\$JS\.API\.CONSUMER\.(?:DURABLE\.)?CREATE\.([^.]+)")
    return [
        (match[1], json.loads(step.body)["config"])
        for step in session.steps
        if (match := makes.match(step.subject))
    ]


def forgive(mine: Any, other: Any, give_up: frozenset[str]) -> None:
    """Take over the few answers of the reference that ours differ from for a written reason.

    docs/reference/compatibility.md names them. ``give_up``: consumers with a ``max_deliver``.
    """
    if isinstance(mine, list) and isinstance(other, list):
        for a, b in zip(mine, other, strict=False):
            forgive(a, b, give_up)
    if not isinstance(mine, dict) or not isinstance(other, dict):
        return
    for key in mine.keys() & other.keys():
        forgive(mine[key], other[key], give_up)
    if "ack_floor" in mine and mine["name"] in give_up:
        # What was given up is below the floor; the reference moves its own and shows the old one.
        shown = other.get("ack_floor", mine["ack_floor"])
        if mine["ack_floor"]["stream_seq"] > shown["stream_seq"]:
            mine["ack_floor"] = shown
    ends = mine.get("durable_name") and mine.get("inactive_threshold") == EPHEMERAL_NS
    if ends and "inactive_threshold" not in other:
        # An update made it durable: at the next restart the reference forgets the threshold.
        del mine["inactive_threshold"]
    if "consumer_count" in mine and "consumer_count" in other:
        # Four bytes for each header block, and a hole at 0 in a store that was never used.
        if mine["bytes"] <= other["bytes"] <= mine["bytes"] + 4 * mine["messages"]:
            mine["bytes"] = other["bytes"]
        if other["last_seq"] == mine["last_seq"] == 0:
            mine["first_seq"] = other["first_seq"]  # a purge of nothing makes it 1
        if other.get("deleted") == [0] or (other["messages"] == 0 and "num_deleted" in other):
            mine |= {key: other[key] for key in ("deleted", "num_deleted") if key in other}


def forgive_pending(mine: Any, other: Any, whose: frozenset[str] | None) -> None:
    """Take over deliveries that the reference awaits acks of though their records are gone.

    After a purge it looks at them only where the floor is below the first record, and otherwise
    only where the record matches the filters that the consumer has by then. ``whose``: consumers
    that this may happen to, None for all.
    """
    if isinstance(mine, list) and isinstance(other, list):
        for a, b in zip(mine, other, strict=False):
            forgive_pending(a, b, whose)
    elif isinstance(mine, dict) and isinstance(other, dict):
        is_meant = whose is None or mine.get("name") in whose
        if is_meant and mine.get("num_ack_pending", 0) < other.get("num_ack_pending", 0):
            mine |= {key: other[key] for key in ("num_ack_pending", "ack_floor")}
        if whose is None and "ack_floor" in mine and mine["config"]["ack_policy"] == "all":
            # Where all is acked, it shows a removed record as the floor of those that are pending.
            shown = other.get("ack_floor", mine["ack_floor"])
            if mine["ack_floor"]["stream_seq"] < shown["stream_seq"]:
                mine["ack_floor"] = shown
        for key in mine.keys() & other.keys():
            forgive_pending(mine[key], other[key], whose)


def forgive_floors(mine: Any, other: Any, went: Deliveries) -> None:
    """Take over a floor of the reference whose last delivery is one behind it.

    Where a filtered purge removes one behind deliveries that are still pending, the reference moves
    the consumer sequence there, unless the end of that delivery, which it leaves to another thread,
    comes first. Acks of those before it move nothing then, not even that of the last one pending.
    """
    if isinstance(mine, list) and isinstance(other, list):
        for a, b in zip(mine, other, strict=False):
            forgive_floors(a, b, went)
    elif isinstance(mine, dict) and isinstance(other, dict):
        floor, shown = mine.get("ack_floor"), other.get("ack_floor")
        if floor and shown and _is_below_pending(mine):
            place = shown["stream_seq"]
            records = went[mine["stream_name"], mine["name"]][shown["consumer_seq"]]
            if place <= floor["stream_seq"] and any(record > place for record in records):
                floor |= {key: shown[key] for key in _POSITION}
        for key in mine.keys() & other.keys():
            forgive_floors(mine[key], other[key], went)


_POSITION = ("consumer_seq", "stream_seq")


def _is_below_pending(info: dict[str, Any]) -> bool:
    """Whether a floor can be right: where nothing is pending it is the last delivery."""
    delivered, floor = info["delivered"], info["ack_floor"]
    return info["num_ack_pending"] > 0 or all(delivered[key] == floor[key] for key in _POSITION)


def deliveries(seen: Any, known: Deliveries | None = None) -> Deliveries:
    """Return what went under which consumer sequence, as the ack subjects tell it."""
    known = defaultdict(lambda: defaultdict(set)) if known is None else known
    if isinstance(seen, list):
        for inner in seen:
            deliveries(inner, known)
    elif isinstance(seen, str) and seen.startswith("$JS.ACK."):
        _, _, stream, consumer, _, record, sequence, *_ = seen.split(".")
        known[stream, consumer][int(sequence)].add(int(record))
    return known


def forgive_activity(mine: Any, other: Any, whose: frozenset[str]) -> None:
    """Take over that an ack floor moved without an ack, where the wait for acks is that short.

    An update of a stream keeps its store locked for longer. The timer of the reference, which looks
    for waits that are over, waits for that lock, and comes before those who end the deliveries of
    records that the update's limits removed: it ends them too, and tells nobody.
    """
    if isinstance(mine, list) and isinstance(other, list):
        for a, b in zip(mine, other, strict=False):
            forgive_activity(a, b, whose)
    elif isinstance(mine, dict) and isinstance(other, dict):
        is_meant = "ack_floor" in mine and "ack_floor" in other and mine["name"] in whose
        if is_meant and "last_active" not in other["ack_floor"]:
            mine["ack_floor"].pop("last_active", None)
        for key in mine.keys() & other.keys():
            forgive_activity(mine[key], other[key], whose)


def forgive_events(
    ours: list[Any], theirs: list[Any], kind: str, whose: frozenset[str] | None = None
) -> None:
    """Take out events of ours that the reference does not tell of, of all or of these consumers.

    It looks at a consumer's new filters when a record goes that was delivered under the old ones,
    and takes no -NAK of a delivery below the floor that a filtered purge has moved. Where all is
    acked, what such a purge removes acks what was delivered before it. The other way round: before
    it rolls up, a full stream of the reference drops its oldest record, and tells of that.
    """
    for mine, other in zip(ours, theirs, strict=False):
        if mine[:1] == ["events"] == other[:1]:
            extra = Counter(mine) - Counter(other)
            for event in extra.elements():
                name = json.loads(event)[0].rpartition(".")[2]
                if kind in event and (whose is None or name in whose):
                    mine.remove(event)


def forgive_early(ours: list[Any], theirs: list[Any], whose: frozenset[str]) -> None:
    """Take out what both tell of deliveries given up, where we have told it by then.

    The reference gives up the last of several deliveries when the next request comes.
    """
    told: Counter[str] = Counter()
    for mine, other in zip(ours, theirs, strict=False):
        if mine[:1] == ["events"] == other[:1]:
            for event in [each for each in mine[1:] if _is_given_up(each, whose)]:
                told[event] += 1
                mine.remove(event)
            for event in [each for each in other[1:] if _is_given_up(each, whose)]:
                if told[event]:
                    told[event] -= 1
                    other.remove(event)


def _is_given_up(event: str, whose: frozenset[str]) -> bool:
    return GIVEN_UP in event and json.loads(event)[0].rpartition(".")[2] in whose


def forgive_counts(mine: Any, other: Any) -> None:
    """Take over counts of pending records in ack subjects that the reference has yet to correct.

    It does so when it is next asked for the consumer's info.
    """
    if not isinstance(mine, list) or not isinstance(other, list):
        return
    for at, (a, b) in enumerate(zip(mine, other, strict=False)):
        if isinstance(a, str) and isinstance(b, str) and a.startswith("$JS.ACK."):
            subject, _, left = a.rpartition(".")
            counted = b.removeprefix(f"{subject}.")
            if counted.isdigit() and int(counted) > int(left):
                mine[at] = b
        forgive_counts(a, b)


def differences(ours: list[Any], theirs: list[Any], occasions: Occasions) -> list[str]:
    """Name the steps of a session that ended differently, and how."""
    forgive(ours, theirs, occasions.give_up)
    purges, whose = occasions.purges, occasions.refiltered
    forgive_activity(ours, theirs, occasions.hasty)
    forgive_events(ours, theirs, DROPPED, occasions.hasty)
    if occasions.early:
        forgive_early(ours, theirs, occasions.early)
        forgive_pending(ours, theirs, occasions.early)
    if occasions.rolls_up_full:
        forgive_events(theirs, ours, DROPPED)
    acks_all = purges and occasions.acks_all
    if occasions.cuts:
        forgive_counts(ours, theirs)
    if purges:
        forgive_floors(ours, theirs, deliveries(theirs))
        forgive_events(ours, theirs, "CONSUMER.MSG_NAKED.")
    if purges or whose:
        forgive_pending(ours, theirs, None if purges else whose)
    if whose or acks_all:
        forgive_events(ours, theirs, DROPPED, None if acks_all else whose)
    return [
        f"step {at}: {'; '.join(where(mine, other))}"
        for at, (mine, other) in enumerate(zip(ours, theirs, strict=True))
        if mine != other
    ]


def where(mine: object, other: object, path: str = "") -> list[str]:
    """Name the places in which two answers differ."""
    if isinstance(mine, list) and isinstance(other, list) and mine[:1] == ["events"]:
        extra, missing = Counter(mine) - Counter(other), Counter(other) - Counter(mine)
        return [f"events too many {list(extra)}, missing {list(missing)}"]
    if isinstance(mine, dict) and isinstance(other, dict):
        keys = [key for key in {**mine, **other} if mine.get(key) != other.get(key)]
        return [
            line for key in keys for line in where(mine.get(key), other.get(key), f"{path}.{key}")
        ]
    if isinstance(mine, list) and isinstance(other, list) and len(mine) == len(other):
        pairs = [(at, a, b) for at, (a, b) in enumerate(zip(mine, other, strict=True)) if a != b]
        return [line for at, a, b in pairs for line in where(a, b, f"{path}.{at}")]
    return [f"{path or '.'} is {json.dumps(mine)[:600]}, not {json.dumps(other)[:600]}"]
