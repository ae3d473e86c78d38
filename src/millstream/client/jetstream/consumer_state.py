"""ConsumerState: a consumer as CONSUMER.INFO shows it, and why it stands where it does."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

READER = "millstream.reader"


class ConsumerTerms(msgspec.Struct, frozen=True):
    """What of a consumer's configuration decides whether it delivers."""

    deliver_subject: str = ""
    ack_policy: str = "none"
    max_ack_pending: int = 0
    pause_until: str = ""
    filter_subject: str = ""
    filter_subjects: list[str] = []
    priority_policy: str = "none"
    metadata: dict[str, str] = {}

    @property
    def filters(self) -> list[str]:
        """Return the subjects that it wants; none stands for all."""
        return self.filter_subjects or ([self.filter_subject] if self.filter_subject else [])


class ConsumerPosition(msgspec.Struct, frozen=True):
    """How far a consumer is."""

    stream_seq: int = 0
    last_active: str = ""


class GroupState(msgspec.Struct, frozen=True):
    """A priority group, and the client that it is pinned to."""

    group: str = ""
    pinned_client_id: str = ""
    pinned_ts: str = ""


class HeldKey(msgspec.Struct, frozen=True):
    """A key that records wait for, and the record that has it."""

    key: str = ""
    seq: int = 0
    waiting: int = 0
    deliveries: int = 0


class KeyState(msgspec.Struct, frozen=True):
    """How many records wait because another of their key is out."""

    key: str = ""
    waiting: int = 0
    most: int = 0
    blocked: list[HeldKey] = []


class ConsumerState(msgspec.Struct, frozen=True):
    """A consumer at one moment."""

    config: ConsumerTerms
    num_ack_pending: int = 0
    num_waiting: int = 0
    num_pending: int = 0
    push_bound: bool = False
    paused: bool = False
    pause_remaining: int = 0  # nanoseconds
    num_redelivered: int = 0
    delivered: ConsumerPosition = ConsumerPosition()
    ack_floor: ConsumerPosition = ConsumerPosition()
    priority_groups: list[GroupState] = []
    millstream_keys: KeyState | None = None

    def why(self, captured: Sequence[str] = ()) -> "Reason":
        """Return why it stands where it does; ``captured`` are its stream's subjects."""
        code, cause, fix = _cause(self, captured)
        return Reason(code, cause, self.num_pending, self.num_ack_pending, tuple(_notes(self)), fix)


class Reason(msgspec.Struct, frozen=True):
    """Why a consumer stands where it does: a word for programs, a cause and a fix for people."""

    code: str
    cause: str
    pending: int
    in_flight: int
    notes: tuple[str, ...] = ()
    fix: str = ""

    def text(self) -> str:
        """Return it in one line; the cause comes first."""
        more = "".join(f"; {note}" for note in self.notes)
        fix = f" ({self.fix})" if self.fix else ""
        return f"{self.cause}{fix}; {self.pending} pending, {self.in_flight} in flight{more}"

    def shown(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "reason": self.code,
            "cause": self.cause,
            "fix": self.fix,
            "pending": self.pending,
            "in_flight": self.in_flight,
            "notes": list(self.notes),
        }


def why_of(told: object, captured: Sequence[str] = ()) -> Reason:
    """Return why a consumer stands where it does; ``captured`` are its stream's subjects."""
    return msgspec.convert(told, ConsumerState, strict=False).why(captured)


def _cause(state: ConsumerState, captured: Sequence[str]) -> tuple[str, str, str]:
    terms = state.config
    if state.paused:
        left = state.pause_remaining // 1_000_000_000
        until = terms.pause_until or "later"
        return "paused", f"paused until {until} ({left} s more)", ""
    dead = [each for each in terms.filters if captured and not _may_match(each, captured)]
    if dead and len(dead) == len(terms.filters):
        wanted = ", ".join(dead)
        return (
            "filter_matches_nothing",
            f"its filter {wanted} matches none of the stream's subjects {', '.join(captured)}",
            "change it with `consumer edit --filter`",
        )
    if terms.metadata.get(READER):
        return _reader(state)
    if not state.num_pending:
        return "caught_up", "caught up", ""
    return _behind(state)


def _reader(state: ConsumerState) -> tuple[str, str, str]:
    at = state.delivered.stream_seq or state.ack_floor.stream_seq
    if not state.num_pending:
        return "reader_caught_up", f"a Spark reader, caught up at seq {at}", ""
    cause = f"a Spark reader, which has committed up to seq {at}"
    return "reader_behind", cause, "it moves when its query finishes a batch"


def _behind(state: ConsumerState) -> tuple[str, str, str]:
    terms = state.config
    if 0 < terms.max_ack_pending <= state.num_ack_pending and terms.ack_policy != "none":
        limit = terms.max_ack_pending
        return "max_ack_pending", f"waiting for acks (max_ack_pending of {limit} reached)", ""
    if (keys := state.millstream_keys) and keys.waiting and _waits_for_keys(state, keys):
        return _blocked_keys(keys)
    if terms.deliver_subject:
        if not state.push_bound:
            cause = f"no interest on the deliver subject {terms.deliver_subject}"
            return "no_interest", cause, ""
    elif not state.num_waiting:
        if terms.priority_policy == "pinned_client":
            for group in state.priority_groups:
                if group.pinned_client_id:
                    cause = f"group {group.group} is pinned to a client that does not pull"
                    return "pinned", cause, "`consumer unpin` frees it"
        return "nobody_pulls", "no waiting pull requests (nobody fetches)", ""
    elif terms.priority_policy == "pinned_client":
        pinned = [each.group for each in state.priority_groups if each.pinned_client_id]
        if pinned:
            cause = f"behind by {state.num_pending}, delivering to the client that is pinned"
            return "delivering", cause, ""
    return "delivering", f"behind by {state.num_pending}, delivering", ""


def _waits_for_keys(state: ConsumerState, keys: KeyState) -> bool:
    """Whether nothing can go before a key is free: all that is left waits, or no more may."""
    is_stuck = keys.waiting >= min(state.num_pending, keys.most)
    has_clients = state.num_waiting > 0 or state.push_bound
    return is_stuck and has_clients


def _blocked_keys(keys: KeyState) -> tuple[str, str, str]:
    told = "; ".join(
        f"{each.waiting} wait for seq {each.seq} of key {each.key!r}, delivered "
        + ("once" if each.deliveries == 1 else f"{each.deliveries} times")
        for each in keys.blocked
    )
    cause = f"waiting for acks: another record of the same key ({keys.key}) is out: {told}"
    return "blocked_keys", cause, "ack it, or refuse it for good with +TERM"


def _notes(state: ConsumerState) -> Iterable[str]:
    if state.millstream_keys is not None and state.millstream_keys.waiting:
        yield f"{state.millstream_keys.waiting} wait for their keys"
    if state.num_redelivered:
        yield f"{state.num_redelivered} were delivered more than once"
    if state.config.filters:
        yield f"only {', '.join(state.config.filters)}"


def _may_match(wanted: str, captured: Sequence[str]) -> bool:
    return any(_overlap(wanted.split("."), each.split(".")) for each in captured)


def _overlap(one: list[str], other: list[str]) -> bool:
    """Return whether two patterns have a subject in common."""
    for at, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if ">" in (mine, theirs):
            return True
        if mine != theirs and "*" not in (mine, theirs):
            return False
        if at == min(len(one), len(other)) - 1 and len(one) != len(other):
            longer = one if len(one) > len(other) else other
            return len(longer) > at + 1 and longer[at] == ">"
    return len(one) == len(other)
