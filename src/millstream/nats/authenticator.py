"""Authenticator: who comes in, and to which account. It decides; the session carries out."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from millstream.accounts.credentials import Credentials, Identity, Presented
from millstream.clock import Clock
from millstream.nats.accounts.accounts import Accounts, Space
from millstream.nats.record_reads import SubjectsOf, unknown_subjects
from millstream.nats.referees import Referees
from millstream.nats.transport.transport import Kind, Transport
from millstream.wire.connect import ConnectOptions

if TYPE_CHECKING:
    from millstream.nats.session import Session

CALLOUT = "$SYS.REQ.USER.AUTH"


class ClientWatcher(Protocol):
    """Who wants to hear of clients that come and go."""

    def connected(self, session: "Session") -> None:
        """Tell of a client that was believed."""

    def refused(self, session: "Session") -> None:
        """Tell of a client that was not believed."""

    def left(self, space: Space) -> None:
        """Tell of an account that has a client less."""


class ClientEvents:
    """Tells everyone who watches of clients that come and go."""

    def __init__(self) -> None:
        self._watchers: list[ClientWatcher] = []

    def watch(self, watcher: ClientWatcher) -> None:
        """Tell one more from here on."""
        self._watchers.append(watcher)

    def connected(self, session: "Session") -> None:
        """Tell of a client that was believed."""
        for watcher in self._watchers:
            watcher.connected(session)

    def refused(self, session: "Session") -> None:
        """Tell of a client that was not believed."""
        for watcher in self._watchers:
            watcher.refused(session)

    def left(self, space: Space) -> None:
        """Tell of an account that has a client less."""
        for watcher in self._watchers:
            watcher.left(space)


class Admitted(msgspec.Struct, frozen=True):
    """A client that was believed, and where it belongs."""

    identity: Identity
    space: Space

    def is_as(self, identity: Identity | None, space: Space | None) -> bool:
        """Whether the client is who it was, in the account where it was."""
        return space is self.space and identity == self.identity


class Authenticator:
    """Knows everyone that may come in, by the kind of their connection."""

    def __init__(
        self,
        accounts: Accounts,
        clock: Clock,
        credentials: Credentials,
        by_kind: Mapping[Kind, Credentials] | None = None,
        subjects_of: SubjectsOf = unknown_subjects,
    ) -> None:
        self.accounts = accounts
        self.events = ClientEvents()
        self.subjects_of = subjects_of
        self._clock = clock
        self._credentials = credentials
        self._by_kind = dict(by_kind or {})
        self.referees = Referees()

    @property
    def credentials(self) -> Credentials:
        """Everyone who is known at doors that have no kinds of connection."""
        return self._credentials

    def apply(
        self, credentials: Credentials, by_kind: Mapping[Kind, Credentials] | None = None
    ) -> None:
        """Believe these from now on."""
        self._credentials = credentials
        self._by_kind = dict(by_kind or {})

    def required(self, kind: Kind) -> bool:
        """Say whether a client must say who it is before anything else."""
        return self._for(kind).required

    def wants_nonce(self, kind: Kind) -> bool:
        """Say whether a client may have to sign something fresh."""
        return self._for(kind).wants_nonce

    def guest(self, transport: Transport) -> Admitted | None:
        """Return what a client is before it said anything, None where it must say something."""
        if self.required(transport.kind):
            return None
        guest = self.admit(Presented(address=transport.peer, connection_type=transport.kind))
        return None if guest is None or guest.space.is_full else guest

    def admit(self, presented: Presented) -> Admitted | None:
        """Return who it is, None when it is not believed or its account is not there."""
        known = self._for(Kind(presented.connection_type))
        identity = known.identify(presented, self._clock.time_ns() / 1e9)
        if identity is None:
            return None
        return self.place(identity)

    def place(self, identity: Identity) -> Admitted | None:
        """Return where somebody who is believed belongs, None when the account is not there.

        Nobody beside a callout's service may ask it in the server's name.
        """
        space = self.accounts.get(identity.account)
        if space is None:
            return None
        if self._credentials.callout_of(identity.account) is not None:
            identity = replace(identity, permissions=identity.permissions.without(CALLOUT))
        return Admitted(identity, space)

    def again(self, presented: Presented, identity: Identity) -> Admitted | None:
        """Judge somebody who is in anew; whom a service let in stays while services are asked."""
        if not identity.is_delegated:
            return self.admit(presented)
        known = self._credentials
        asks = known.callout is not None or known.trust is not None
        return self.place(identity) if asks else None

    def _for(self, kind: Kind) -> Credentials:
        return self._by_kind.get(kind, self._credentials)


def presented_by(options: ConnectOptions, transport: Transport, nonce: str) -> Presented:
    """Put together what CONNECT and the way to the client say; CONNECT goes before cookies."""
    cookies = transport.cookies
    return Presented(
        user=options.user or cookies.user,
        password=options.password or cookies.password,
        token=options.auth_token or cookies.token,
        nkey=options.nkey,
        signature=options.sig,
        jwt=options.jwt or cookies.jwt,
        nonce=nonce,
        address=transport.peer,
        connection_type=transport.kind,
        certificate_names=transport.certificate_names,
    )
