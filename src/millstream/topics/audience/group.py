"""Group: followers who wait in one place and see the same, so that one decision serves them all."""

from typing import TYPE_CHECKING

from millstream.http.socket_writer import SocketWriter, send_all

if TYPE_CHECKING:
    from millstream.http.request import Standing
    from millstream.topics.audience.follower import Follower
    from millstream.topics.audience.read_position import ReadPosition


FEW = 4  # clients; so many are as soon sent to one by one


class Group:
    """Each of its members waits, has seen everything, and takes pieces without being asked."""

    def __init__(self) -> None:
        self._members: dict[Follower, SocketWriter] = {}
        self._standings: dict[int, Standing] = {}  # by identity: a key's followers have the same
        self._positions: list[ReadPosition] | None = None  # made when they are needed
        self._writers: list[SocketWriter] = []

    def __len__(self) -> int:
        return len(self._members)

    def members(self) -> "list[Follower]":
        """Return everybody, in the order in which they came."""
        return list(self._members)

    def stands_at(self, cursor: int) -> bool:
        """Say whether one who stands there is in the same place."""
        first = next(iter(self._members), None)
        return first is None or first.position.cursor == cursor

    def add(self, follower: "Follower", writer: SocketWriter) -> None:
        """Take somebody in who is in the same place."""
        self._members[follower] = writer
        standing = follower.caller.standing
        self._standings[id(standing)] = standing
        self._positions = None

    def remove(self, follower: "Follower") -> None:
        """Let somebody go, which stands where it stood."""
        del self._members[follower]
        self._positions = None

    def send(self, now: float) -> bool:
        """Send what a commit brought; False when each member must be looked at."""
        if any(each.revoked for each in self._standings.values()):
            return False
        one = next(iter(self._members))
        update = one.view.update(one.position.cursor) if one.view is not None else None
        if update is None:
            return False
        if self._positions is None:
            self._positions = [each.position for each in self._members]
            self._writers = list(self._members.values())
        cursor = update.cursor
        for position in self._positions:
            position.cursor, position.sent_at = cursor, now
        # Who falls behind by this leaves the group, and has been sent it all the same.
        if update.plain:
            _send(self._writers, update.chunked)
        return True


def _send(writers: list[SocketWriter], piece: bytes) -> None:
    if len(writers) > FEW:
        send_all(writers, piece)
        return
    for writer in writers:
        writer.send(piece)
