"""Accounts at the NATS door: a subject space for each, and who is in it."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from millstream.accounts.account import (
    GLOBAL_ACCOUNT,
    SYSTEM_ACCOUNT,
    Account,
    accounts_with_defaults,
)
from millstream.accounts.account import Mapping as SubjectMapping
from millstream.accounts.mapper import Mapper
from millstream.kernel._hub import Hub
from millstream.kernel._interest import Interest
from millstream.subjects.subject import matches
from millstream.subjects.transform import BadTransform

if TYPE_CHECKING:
    from millstream.nats.accounts.stream_import import StreamImport
    from millstream.nats.session import Session

log = logging.getLogger(__name__)

PAST = ("in_msgs", "in_bytes", "out_msgs", "out_bytes", "slow_consumers")


class Space:
    """One account while the server runs; ``mapper`` is None where nothing is mapped."""

    def __init__(self, account: Account, interest: Interest) -> None:
        self.account = account
        self.mapper = _mapper_of(account)
        self.interest = interest
        self.members: dict[int, Session] = {}
        self.stream_imports: list[StreamImport] = []
        self.past = dict.fromkeys(PAST, 0)  # what connections that ended have moved

    @property
    def name(self) -> str:
        """The account's name."""
        return self.account.name

    @property
    def is_full(self) -> bool:
        """Whether no further connection fits."""
        return 0 <= self.account.limits.max_connections <= len(self.members)

    def surplus(self, going: Collection[int]) -> "list[Session]":
        """Return the connections above the limit, those that came last; some go already."""
        most = self.account.limits.max_connections
        staying = sorted(cid for cid in self.members if cid not in going)
        return [] if most < 0 else [self.members[cid] for cid in staying[most:]]

    def become(self, account: Account) -> None:
        """Go on as this account is configured now."""
        self.account = account
        self.mapper = _mapper_of(account)

    def imports_service(self, subject: str) -> bool:
        """Whether a service of another account answers requests on ``subject``."""
        imports = self.account.imports
        return any(item.service and matches(item.local, subject) for item in imports)

    def mapped(self, subject: bytes) -> bytes:
        """Return where a message published to ``subject`` really goes."""
        return subject if self.mapper is None else self.mapper(subject)

    def subscriptions(self, hub: Hub) -> int:
        """Return how many subscriptions the connections hold together."""
        return sum(hub.connection_stats(cid)["subscriptions"] for cid in self.members)

    def enter(self, session: "Session") -> None:
        """Count a connection in."""
        self.members[session.cid] = session

    def leave(self, cid: int) -> None:
        """Count a connection out, with whatever it listened to."""
        self.members.pop(cid, None)
        for stream in self.stream_imports:
            stream.lost(cid)

    def ended(self, moved: Mapping[str, int], *, slow: bool) -> None:
        """Add what a connection moved that ends now, maybe as a slow consumer."""
        for name in PAST:
            self.past[name] += moved.get(name, 0)
        self.past["slow_consumers"] += slow

    def listened(self, cid: int, sid: bytes, subject: bytes) -> None:
        """Note a subscription: what others export flows only while somebody wants it."""
        for stream in self.stream_imports:
            stream.wanted(cid, sid, subject)

    def unlistened(self, cid: int, sid: bytes) -> None:
        """Note that a subscription is gone."""
        for stream in self.stream_imports:
            stream.unwanted(cid, sid)


def _mapper_of(account: Account) -> Mapper | None:
    """Return what the mappings come to; a file's are sound, a JWT's may be anything."""
    sound = [mapping for mapping in account.mappings if _is_sound(account, mapping)]
    return Mapper(sound) if sound else None


def _is_sound(account: Account, mapping: SubjectMapping) -> bool:
    try:
        Mapper([mapping])
    except BadTransform as error:
        log.error("mapping left out account=%s from=%s: %s", account.name, mapping.source, error)
        return False
    return True


class _Interests(dict[str, Interest]):
    """Subject spaces by account; one that is not there is made when it is asked for.

    So records of an account that is gone have a space of their own, which nobody can enter.
    """

    def __init__(self, make: Callable[[], Interest]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> Interest:
        made = self[name] = self._make()
        return made


class Accounts:
    """Every account by name. ``interests`` is one mapping that stays up to date."""

    def __init__(
        self,
        accounts: Iterable[Account] = (),
        *,
        global_interest: Interest | None = None,
        system: str = SYSTEM_ACCOUNT,
        make_interest: Callable[[], Interest] = Interest,
    ) -> None:
        self.interests: dict[str, Interest] = _Interests(make_interest)
        self._spaces: dict[str, Space] = {}
        self._system = system
        self._watching: list[Callable[[], None]] = []
        if global_interest is not None:
            self.interests[GLOBAL_ACCOUNT] = global_interest
        self.apply(accounts)

    def apply(self, accounts: Iterable[Account]) -> None:
        """Take these as the accounts that there are; nobody is admitted to others any more."""
        wanted = {a.name: a for a in accounts_with_defaults(accounts, system=self._system)}
        for name in [name for name in self._spaces if name not in wanted]:
            del self._spaces[name]
        for name, account in wanted.items():
            if name in self._spaces:
                self._spaces[name].become(account)
            else:
                self._spaces[name] = Space(account, self.interests[name])
        for on_change in self._watching:
            on_change()

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call ``on_change`` each time other accounts, or other limits of them, are in force."""
        self._watching.append(on_change)

    def __iter__(self) -> Iterator[Space]:
        return iter(list(self._spaces.values()))

    def get(self, name: str) -> Space | None:
        """Return an account's space, None when there is no such account."""
        return self._spaces.get(name)

    @property
    def configured(self) -> Mapping[str, Account]:
        """The accounts as they were configured."""
        return {name: space.account for name, space in self._spaces.items()}

    @property
    def system(self) -> Space | None:
        """The account in which the server tells about itself."""
        return self._spaces.get(self._system) if self._system else None
