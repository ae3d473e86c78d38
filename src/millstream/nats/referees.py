"""Referees: those who must be asked about a client before the server decides about it."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from millstream.nats.authenticator import Admitted
    from millstream.nats.session import Session

Judged = Callable[["Admitted | None"], None]


class Referee(Protocol):
    """Somebody whose answer takes a while."""

    def wants(self, session: "Session", admitted: "Admitted | None") -> bool:
        """Say whether it has a say about this client."""

    def ask(self, session: "Session", admitted: "Admitted | None", judged: Judged) -> None:
        """Call ``judged`` with the verdict once, now or later, while the client is still there."""


class Referees:
    """Asks one after the other; each sees what the one before it made of the client."""

    def __init__(self) -> None:
        self._listed: list[Referee] = []

    def add(self, referee: Referee) -> None:
        """Ask one more from here on."""
        self._listed.append(referee)

    def __len__(self) -> int:
        return len(self._listed)

    def judge(
        self, session: "Session", admitted: "Admitted | None", judged: Judged, first: int = 0
    ) -> None:
        """Call ``judged`` with what all of them together make of the client."""
        for at in range(first, len(self._listed)):
            referee = self._listed[at]
            if referee.wants(session, admitted):
                behind = partial(self.judge, session, judged=judged, first=at + 1)
                referee.ask(session, admitted, behind)
                return
        judged(admitted)
