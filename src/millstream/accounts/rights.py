"""Rights: what one connection may do now. Its permissions, and the answers that it owes."""

from millstream.accounts.permissions import Answers, Permissions

# The server answers and acknowledges here itself; a client may publish there, but not ask for
# answers there, or it could have the server speak in another client's place.
_RESERVED_REPLIES = (b"_R_.", b"$JS.ACK.", b"_GR_.")


def reserved_reply(reply: bytes) -> bool:
    """Say whether no client may name ``reply`` as the place for an answer."""
    return reply.startswith(_RESERVED_REPLIES)


def text_of(subject: bytes) -> str:
    """Return a subject from the wire so that other bytes are always another text."""
    return subject.decode("utf-8", "surrogateescape")


class Rights:
    """Judges subjects as they come from the wire; deny always wins."""

    def __init__(self, permissions: Permissions) -> None:
        self.permissions = permissions
        self._answers = None
        if permissions.responses is not None:
            self._answers = Answers(permissions.responses)

    @property
    def guards_publishing(self) -> bool:
        """Whether publishes must be looked at."""
        rule = self.permissions.publish
        return rule.allow is not None or bool(rule.deny) or self._answers is not None

    @property
    def answers_requests(self) -> bool:
        """Whether requests that arrive must be noted, as they may be answered."""
        return self._answers is not None

    def asked(self, reply: bytes, now: float) -> None:
        """Note that a request arrived that wants its answer at ``reply``."""
        if self._answers is not None:
            self._answers.asked(text_of(reply), now)

    def may_publish(self, subject: bytes, now: float) -> bool:
        """Say whether a message may go to ``subject``; an owed answer is counted."""
        rule, text = self.permissions.publish, text_of(subject)
        if self._answers is None:
            return rule.permits(text)
        # Leave to answer widens what is allowed, and an explicit deny still stands.
        if rule.allow is not None and rule.permits(text):
            return True
        return not rule.denies(text) and self._answers.may_answer(text, now)

    def may_subscribe(self, subject: bytes, queue: bytes) -> bool:
        """Say whether ``subject`` may be listened to, in this queue group if one is named."""
        return self.permissions.subscribe.permits(text_of(subject), text_of(queue))

    def hidden(self, queue: bytes) -> tuple[bytes, ...]:
        """Return the patterns that a permitted subscription must still not receive on."""
        patterns = self.permissions.subscribe.filters(text_of(queue))
        return tuple(pattern.encode("utf-8", "surrogateescape") for pattern in patterns)
