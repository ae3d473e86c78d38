"""``$SYS.REQ.USER.INFO``: a client asks who it is and what it may do."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.accounts.permissions import Permissions, Rule, SubjectRule
from millstream.clock import Clock
from millstream.kernel._batch import Batch
from millstream.nats.system.server_card import ServerCard

if TYPE_CHECKING:
    from millstream.kernel._hub import Hub
    from millstream.nats.accounts.accounts import Space
    from millstream.nats.session import Session

SUBJECT = b"$SYS.REQ.USER.INFO"
_NS = 1_000_000_000


class UserInfo:
    """Answers in one account, and only clients that are in it themselves."""

    def __init__(
        self,
        hub: "Hub",
        space: "Space",
        card: ServerCard,
        clock: Clock,
        find_session: Callable[[int], "Session | None"],
    ) -> None:
        self._hub = hub
        self._space = space
        self._card = card
        self._clock = clock
        self._find_session = find_session
        space.interest.add_sink(SUBJECT, self)

    def deliver(self, batch: Batch) -> None:
        """Answer each request."""
        for at in range(len(batch)):
            _, reply, _, _, origin = batch.message(at)
            session = self._find_session(origin)
            if reply and session is not None and session.space is self._space:
                answer = self._card.answer(self._about(session))
                self._hub.publish(self._space.interest, reply, b"", b"", answer)

    def _about(self, session: "Session") -> dict[str, Any]:
        identity, account = session.identity, self._space.account
        told: dict[str, Any] = {
            "user": identity.name if identity is not None else "",
            "account": account.name,
            "account_name": account.shown_name,
        }
        if identity is None:
            return told
        if identity.label:
            told["user_name"] = identity.label
        if not identity.permissions.unlimited:
            told["permissions"] = shown_permissions(identity.permissions)
        if identity.expires:
            told["expires"] = max(identity.expires * _NS - self._clock.time_ns(), 0)
        return told


def shown_permissions(permissions: Permissions) -> dict[str, Any]:
    """Return permissions as clients are told them."""
    told: dict[str, Any] = {}
    if permissions.publish != Rule():
        told["publish"] = _shown_rule(permissions.publish)
    if permissions.subscribe != Rule():
        told["subscribe"] = _shown_rule(permissions.subscribe)
    if permissions.responses is not None:
        allowed = permissions.responses
        told["responses"] = {"max": allowed.max_messages, "ttl": round(allowed.seconds * _NS)}
    return told


def _shown_rule(rule: Rule) -> dict[str, list[str]]:
    told: dict[str, list[str]] = {}
    if rule.allow:
        told["allow"] = [_shown(entry) for entry in rule.allow]
    if rule.deny:
        told["deny"] = [_shown(entry) for entry in rule.deny]
    return told


def _shown(entry: SubjectRule) -> str:
    return f"{entry.pattern} {entry.queue}" if entry.queue else entry.pattern
