"""LeafRights: what the other end of a leafnode may do here, as a client with its rights might."""

from typing import TYPE_CHECKING

from millstream.accounts.permissions import Permissions
from millstream.accounts.rights import Rights
from millstream.kernel._hub import ALLOWED, ALLOWED_ONCE, DENIED
from millstream.links.peer_link import LinkRules
from millstream.nats.publish_rights import PublishRights

if TYPE_CHECKING:
    from millstream.nats.accounts.accounts import Space
    from millstream.nats.record_reads import SubjectsOf


class LeafRights:
    """Judges requests to the APIs of this server, which could show or change what rules hide."""

    def __init__(
        self, space: "Space", rules: LinkRules, subjects_of: "SubjectsOf", domain: str
    ) -> None:
        """``rules`` are those of its user, or of our remote: not what every link leaves out."""
        self.space = space
        self.rights = Rights(Permissions(publish=rules.incoming, subscribe=rules.outgoing))
        self.publishing = PublishRights(self.rights, space.name, subjects_of, domain)

    @property
    def are_limited(self) -> bool:
        """Whether there is anything that it may not do."""
        return self.rights.guards_publishing

    def judge(self, subject: bytes) -> int:
        """Return DENIED for a request that shows or changes what it must not."""
        if not self.publishing.may_touch(subject):
            return DENIED
        return ALLOWED_ONCE if subject.startswith(b"$") else ALLOWED
