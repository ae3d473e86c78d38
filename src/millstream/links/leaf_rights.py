"""LeafRights: what the other end of a leafnode may do here, as a client with its rights might."""

from typing import TYPE_CHECKING

from millstream.accounts.permissions import Permissions
from millstream.accounts.rights import Rights, text_of
from millstream.kernel._hub import ALLOWED, ALLOWED_ONCE, DENIED
from millstream.links.peer_link import LinkRules
from millstream.nats.publish_rights import PublishRights
from millstream.subjects.pattern_set import any_overlap

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
        self._subjects_of = subjects_of
        self.rights = Rights(Permissions(publish=rules.incoming, subscribe=rules.outgoing))
        self.publishing = PublishRights(self.rights, space.name, subjects_of, domain)

    @property
    def are_limited(self) -> bool:
        """Whether there is anything that it may not do."""
        return self.rights.guards_publishing

    def judge(self, subject: bytes) -> int:
        """Return DENIED for a request that shows or changes what it must not."""
        if not self.publishing.may_touch(subject) or self._shows_bucket(subject):
            return DENIED
        return ALLOWED_ONCE if subject.startswith(b"$") else ALLOWED

    def _shows_bucket(self, asked: bytes) -> bool:
        """Whether a consumer would deliver records of a bucket or API that must not be heard.

        Those of other streams are left out one by one, on their way.
        """
        tokens = text_of(self.publishing.plain(asked)).split(".")
        if tokens[:3] != ["$JS", "API", "CONSUMER"] or "CREATE" not in tokens[3:5]:
            return False
        place = tokens.index("CREATE") + 1
        stream = tokens[place] if place < len(tokens) else ""
        held = [one for one in self._subjects_of(self.space.name, stream) or () if one[0] == "$"]
        return any_overlap(held, self.rights.permissions.subscribe.filters())
