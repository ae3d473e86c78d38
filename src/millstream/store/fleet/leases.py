"""Leases: who says that it is alive, and how long that is believed (rules 12 to 14).

Nothing here decides what is committed: the log does. A lease says who may answer reads, and when a
standby should try to take the log over. Times come from the caller, by a clock that also runs while
the machine sleeps; the clocks of two machines are never compared.
"""

import msgspec

TERM = 3.0  # seconds that a lease is good for, or that a standby waits
RENEWAL = 1.0  # seconds between two renewals
FOLDER = "members"


class MemberCard(msgspec.Struct, frozen=True):
    """Who a member is: its name, this run of it, and where clients find it."""

    name: str
    run: str
    nats: str = ""
    http: str = ""

    @property
    def lease_name(self) -> str:
        """Return the name of its lease object."""
        return f"{FOLDER}/{self.run}"


class MemberLease(msgspec.Struct, frozen=True):
    """What a member says of itself, again and again; ``beat`` makes each time another one."""

    card: MemberCard
    beat: int
    epoch: int = 0  # of the log that it owns, 0 = it stands by
    left: bool = False  # it has let go of everything


def decode_lease(data: bytes) -> MemberLease | None:
    """Return a lease, None where the bytes are none."""
    try:
        return msgspec.json.decode(data, type=MemberLease)
    except msgspec.MsgspecError:
        return None


class LeaseTerm:
    """How long we may answer: counted from when a renewal was sent, never from its answer.

    One that is answered too late counts for nothing: a standby may have given us up meanwhile.
    """

    def __init__(self, now: float) -> None:
        self._until = now  # nothing is ours before the first renewal

    def begin(self, sent: float) -> None:
        """Take the log: the first renewal as its owner was sent at ``sent``."""
        self._until = sent + TERM

    def renewed(self, sent: float, answered: float) -> bool:
        """Note a renewal; False where it came too late."""
        if answered > self._until:
            return False
        self._until = max(self._until, sent + TERM)
        return True

    def holds(self, now: float) -> bool:
        """Say whether we may answer."""
        return now <= self._until


class LeaseWatch:
    """Says when an owner is to be given up: its lease has not changed for a term, by our clock."""

    def __init__(self) -> None:
        self._seen: tuple[int, bytes | None] | None = None
        self._since = 0.0

    def looked(self, epoch: int, lease: bytes | None, asked: float, answered: float) -> bool:
        """Note what the owner's lease says; True when the log may be taken over.

        A look is as old as its question, and what it shows is new with its answer: a store that
        answers late must not make a lease look older than it is. A new epoch is as young as our
        first look at it, so that nobody is robbed of a log just taken over (rule 13).
        """
        if (epoch, lease) != self._seen:
            self._seen, self._since = (epoch, lease), answered
        said = decode_lease(lease) if lease is not None else None
        if epoch == 0 or (said is not None and said.left):
            return True
        return asked - self._since >= TERM
