"""SessionClients: what others may know and do in the name of a client that is connected."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millstream.accounts.sight import BLIND, Sight
from millstream.nats.client_info import client_info
from millstream.nats.session import Session

if TYPE_CHECKING:
    from millstream.nats.server_link import Judged, ServerLink


class SessionClients:
    """Looks clients up by connection; ``cid`` 0 is the server itself, which may do everything."""

    def __init__(self, sessions: Mapping[int, Session], links: "Mapping[int, ServerLink]") -> None:
        """``links`` are those to other servers, which may have only some rights as well."""
        self._sessions = sessions
        self._links = links

    def _judged(self, cid: int) -> "Judged | None":
        """Return whose rights count, None when nobody is there."""
        link = self._links.get(cid)
        return link.judged if link is not None else self._sessions.get(cid)

    def may_deliver(self, cid: int, account: str, subject: str, group: str) -> bool:
        """Say whether a client may have the server deliver to ``subject`` of its account.

        Whoever asks through an import is judged by what the import lets it ask.
        """
        session = self._judged(cid)
        if session is None:
            return cid == 0
        if session.space is None or session.space.name != account:
            return True
        place = (text.encode("utf-8", "surrogateescape") for text in (subject, group))
        return session.rights.may_be_sent_to(*place)

    def may_copy(
        self,
        cid: int,
        account: str,
        subjects: Sequence[str],
        origins: Sequence[str],
        targets: Sequence[str],
    ) -> bool:
        """Say whether a client may have records of these go out under other subjects."""
        session = self._judged(cid)
        if session is None:
            return cid == 0
        if session.space is None or session.space.name != account:
            return True
        judge = session.publishing
        return judge.may_copy(subjects, origins) and judge.may_send_out(targets)

    def client_of(self, cid: int) -> dict[str, Any]:
        """Return what advisories tell of a client, nothing when it is gone."""
        session = self._sessions.get(cid)
        return client_info(session) if session is not None else {}

    def sight_of(self, cid: int, account: str, stream: str) -> Sight | None:
        """Return what a client sees of a stream of ``account``, None for everything.

        Whoever asks through an import sees what the import shows; whoever is gone, nothing.
        """
        session = self._judged(cid)
        if session is None:
            return None if cid == 0 else BLIND
        if session.space is None or session.space.name != account:
            return None
        return session.publishing.sight_of(stream)
