"""Permissions: which subjects a user may publish and subscribe to. Deny always wins.

No allow list means that everything is allowed. A subscribe entry may name a queue group after a
blank (``"orders.> workers"``): it then speaks of subscriptions in that group alone.
"""

from collections.abc import Iterable
from functools import cached_property

import msgspec

from millstream.subjects.pattern_set import LONGEST_SUBJECT, covering
from millstream.subjects.subject import has_wildcard, is_pattern, is_subset

RESPONSE_MAX = 1
_LONGEST = LONGEST_SUBJECT // 4  # characters, which have up to four bytes
_FEW = 4  # patterns that are faster tried one by one
RESPONSE_SECONDS = 120.0


class BadPermission(ValueError):
    """An entry that is no subject, or a subject with more than one queue group."""


class SubjectRule(msgspec.Struct, frozen=True):
    """One line of a list: a pattern, and the queue group that it is about ("" = any)."""

    pattern: str
    queue: str = ""

    @classmethod
    def parse(cls, text: str, *, queues: bool) -> "SubjectRule":
        """Read ``"subject"`` or, where ``queues`` are allowed, ``"subject queue"``."""
        words = text.split()
        if not 1 <= len(words) <= (2 if queues else 1) or not is_pattern(words[0]):
            raise BadPermission(f"{text!r} is no valid subject")
        return cls(*words)


class RuleIndex:
    """The entries of one list, found without trying each: it may have thousands of them."""

    def __init__(self, entries: Iterable[SubjectRule]) -> None:
        by_queue: dict[str, list[str]] = {}
        for entry in entries:
            by_queue.setdefault(entry.queue, []).append(entry.pattern)
        self._plain = _PatternIndex(by_queue.pop("", ()))
        self._named = _PatternIndex(pattern for found in by_queue.values() for pattern in found)
        self._of_queue = {queue: _PatternIndex(found) for queue, found in by_queue.items()}
        self._wild_queues = [queue for queue in by_queue if has_wildcard(queue)]

    def allows(self, subject: str, queue: str) -> bool:
        """Say whether an entry allows ``subject``; those that name a queue group go first."""
        if queue and self._named.covers(subject):
            return self._names(subject, queue)
        return self._plain.covers(subject)

    def denies(self, subject: str, queue: str) -> bool:
        """Say whether an entry denies ``subject``."""
        return self._plain.covers(subject) or (bool(queue) and self._names(subject, queue))

    def _names(self, subject: str, queue: str) -> bool:
        """A queue name may itself be a pattern, as in ``"orders v1.*"``."""
        exact = self._of_queue.get(queue)
        if exact is not None and exact.covers(subject):
            return True
        wild = (name for name in self._wild_queues if is_subset(queue, name))
        return any(self._of_queue[name].covers(subject) for name in wild)


class _PatternIndex:
    """Patterns in a trie; what does not fit into one is compared, since a denial must hold."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = tuple(dict.fromkeys(patterns))
        self._strange = [each for each in self._patterns if not _fits(each)]
        self._test = covering(each for each in self._patterns if _fits(each))

    def covers(self, subject: str) -> bool:
        if len(self._patterns) <= _FEW or not is_pattern(subject) or len(subject) > _LONGEST:
            return any(is_subset(subject, each) for each in self._patterns)
        found = self._test(subject.encode("utf-8", "surrogateescape"))
        return found or any(is_subset(subject, each) for each in self._strange)


def _fits(pattern: str) -> bool:
    """Whether a trie takes a pattern: it is not too long, and no stray bytes are in it."""
    return len(pattern) <= _LONGEST and not any("\ud800" <= c <= "\udfff" for c in pattern)


class Rule(msgspec.Struct, frozen=True, dict=True):
    """An allow and a deny list for one direction."""

    allow: tuple[SubjectRule, ...] | None = None  # None: everything
    deny: tuple[SubjectRule, ...] = ()

    @classmethod
    def of(
        cls, allow: Iterable[str] | None = None, deny: Iterable[str] = (), *, queues: bool = False
    ) -> "Rule":
        """Read both lists."""
        allowed = None
        if allow is not None:
            allowed = tuple(SubjectRule.parse(text, queues=queues) for text in allow)
        return cls(allowed, tuple(SubjectRule.parse(text, queues=queues) for text in deny))

    def permits(self, subject: str, queue: str = "") -> bool:
        """Say whether ``subject`` (wildcards are tokens like any other) may be used."""
        if self._allows is not None and not self._allows.allows(subject, queue):
            return False
        return not self.denies(subject, queue)

    @cached_property
    def _allows(self) -> RuleIndex | None:
        return None if self.allow is None else RuleIndex(self.allow)

    @cached_property
    def _denies(self) -> RuleIndex:
        return RuleIndex(self.deny)

    def denies(self, subject: str, queue: str = "") -> bool:
        """Say whether ``subject`` is denied, whatever is allowed."""
        return self._denies.denies(subject, queue)

    def filters(self, queue: str = "") -> tuple[str, ...]:
        """Return the denied patterns that a permitted subscription must not receive on.

        All of them, whatever it listens to: a record comes to a client's inbox under the subject
        that it was stored with.
        """
        return tuple(
            entry.pattern
            for entry in self.deny
            if not entry.queue or (queue and _queue_named(queue, [entry]))
        )


def _queue_named(queue: str, entries: list[SubjectRule]) -> bool:
    """A queue name may itself be a pattern, as in ``"orders v1.*"``."""
    return any(
        entry.queue == queue or (has_wildcard(entry.queue) and is_subset(queue, entry.queue))
        for entry in entries
    )


class Responses(msgspec.Struct, frozen=True):
    """Leave to answer: how often and for how long after a request arrived."""

    max_messages: int = RESPONSE_MAX  # below 0: no limit
    seconds: float = RESPONSE_SECONDS  # below 0: no limit


class Permissions(msgspec.Struct, frozen=True):
    """Both directions, and leave to answer the requests that a user receives."""

    publish: Rule = msgspec.field(default_factory=Rule)
    subscribe: Rule = msgspec.field(default_factory=Rule)
    responses: Responses | None = None

    def without(self, subject: str) -> "Permissions":
        """Return these with one more subject that must not be published to."""
        denied = (*self.publish.deny, SubjectRule(subject))
        return msgspec.structs.replace(
            self, publish=msgspec.structs.replace(self.publish, deny=denied)
        )

    @property
    def unlimited(self) -> bool:
        """Whether nothing needs to be checked."""
        return self.publish == Rule() and self.subscribe == Rule() and self.responses is None


class ReplyAllowance:
    """The reply subjects that one connection may publish to because it was asked there."""

    def __init__(self, granted: Responses, most: int = 4096) -> None:
        self._granted = granted
        self._most = most
        self._open: dict[str, tuple[int, float]] = {}  # reply → (messages left, until)

    def asked(self, reply: str, now: float) -> None:
        """Note a request; the oldest is forgotten above the bound."""
        self._open.pop(reply, None)
        if len(self._open) >= self._most:
            del self._open[next(iter(self._open))]
        self._open[reply] = (self._granted.max_messages, now + self._granted.seconds)

    def may_answer(self, reply: str, now: float) -> bool:
        """Say whether one more message may go to ``reply``, and count it."""
        left, until = self._open.get(reply, (0, 0.0))
        if left == 0 or (self._granted.seconds >= 0 and now >= until):
            self._open.pop(reply, None)
            return False
        if left > 0:
            self._open[reply] = (left - 1, until)
        return True
