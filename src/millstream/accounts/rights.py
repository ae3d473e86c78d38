"""Rights: what one connection may do now. Its permissions, and the answers that it owes."""

from millstream.accounts.permissions import Permissions, ReplyAllowance
from millstream.subjects.pattern_set import any_overlap
from millstream.subjects.subject import is_pattern

_MOST_REMEMBERED = 1024
_INBOX = b"_INBOX"  # what inboxes begin with, also where each user has a prefix of its own


def text_of(subject: bytes) -> str:
    """Return a subject from the wire so that other bytes are always another text."""
    return subject.decode("utf-8", "surrogateescape")


class Rights:
    """Judges subjects as they come from the wire; deny always wins.

    ``hides_subjects`` says whether there is something that the client must not hear by any way,
    ``reads_all`` that there is nothing that it may not listen to.
    """

    def __init__(self, permissions: Permissions) -> None:
        self.permissions = permissions
        self.settled: set[bytes] = set()  # subjects that need no further look
        self.hides_subjects = bool(permissions.subscribe.filters())
        self.reads_all = not self.hides_subjects and permissions.subscribe.allow is None
        self._answers = None
        if permissions.responses is not None:
            self._answers = ReplyAllowance(permissions.responses)

    @property
    def guards_publishing(self) -> bool:
        """Whether publishes must be looked at."""
        rule = self.permissions.publish
        limited = rule.allow is not None or bool(rule.deny) or self._answers is not None
        return limited or not self.reads_all

    @property
    def answers_requests(self) -> bool:
        """Whether requests that arrive must be noted, as they may be answered."""
        return self._answers is not None

    def asked(self, reply: bytes, now: float) -> None:
        """Note that a request arrived that wants its answer at ``reply``."""
        if self._answers is not None:
            self._answers.asked(text_of(reply), now)

    def may_publish(self, subject: bytes) -> bool:
        """Say whether messages may go to ``subject``; who only answers needs an allow list."""
        rule = self.permissions.publish
        if self._answers is not None and rule.allow is None:
            return False
        return rule.permits(text_of(subject))

    def remember(self, subject: bytes) -> None:
        """Note that publishing to ``subject`` is allowed, whatever happens."""
        if len(self.settled) >= _MOST_REMEMBERED:
            self.settled.clear()
        self.settled.add(subject)

    def may_answer(self, subject: bytes, now: float) -> bool:
        """Say whether one message may go to ``subject`` as an answer, and count it."""
        text = text_of(subject)
        if self._answers is None or self.permissions.publish.denies(text):
            return False
        return self._answers.may_answer(text, now)

    def may_subscribe(self, subject: bytes, queue: bytes) -> bool:
        """Say whether ``subject`` may be listened to, in this queue group if one is named."""
        return self.permissions.subscribe.permits(text_of(subject), text_of(queue))

    @property
    def guards_replies(self) -> bool:
        """Whether there are places where the client may not have answers sent."""
        rule = self.permissions.publish
        limited = rule.allow is not None or self._answers is not None
        return bool(rule.deny) or (limited and not self.reads_all)

    def may_be_sent_to(self, subject: bytes, queue: bytes = b"") -> bool:
        """Say whether the server, or who is asked, may be told to send there.

        It is a place that the client may publish to, or one where it may listen itself, unless
        publishing there is denied: whoever has others speak for it speaks. An inbox is made for
        answers, so a denial to publish to inboxes means those of others.
        """
        if self.may_publish(subject):
            return True
        if not self.may_subscribe(subject, queue):
            return False
        return subject.startswith(_INBOX) or not self.permissions.publish.denies(text_of(subject))

    def settles_stem(self, reply: bytes) -> bool:
        """Say whether what is true of a reply subject is true whatever its last token is."""
        stem, _, _ = text_of(reply).rpartition(".")
        every = f"{stem}.*"
        if not stem or not is_pattern(every):
            return False
        heard, said = self.permissions.subscribe, self.permissions.publish
        denied = [entry.pattern for entry in (*heard.deny, *said.deny)]
        if any_overlap((every,), denied):
            return False
        return heard.permits(every) or (said.allow is not None and said.permits(every))

    def hidden(self, queue: bytes) -> tuple[bytes, ...]:
        """Return the patterns that a permitted subscription must still not receive on."""
        patterns = self.permissions.subscribe.filters(text_of(queue))
        return tuple(pattern.encode("utf-8", "surrogateescape") for pattern in patterns)
