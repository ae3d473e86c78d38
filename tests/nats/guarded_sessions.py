"""Sessions with credentials and accounts over real sockets, polled by hand."""

import contextlib
import json
import socket
from collections.abc import Iterable

from millstream.accounts.account import Account
from millstream.accounts.credentials import Credentials
from millstream.clock import ManualClock
from millstream.kernel._interest import Interest
from millstream.nats.accounts.accounts import Accounts
from millstream.nats.accounts.sharing import Sharing
from millstream.nats.authenticator import Authenticator
from millstream.nats.session import NatsLimits
from millstream.nats.sessions import Sessions
from millstream.wire.info import server_info

QUIET = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}


class GuardedSessions:
    """A door without a loop: every exchange is one poll."""

    def __init__(
        self,
        credentials: Credentials,
        accounts: Iterable[Account] = (),
        limits: NatsLimits | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.accounts = Accounts(accounts)
        self.reception = Authenticator(self.accounts, self.clock, credentials)
        info = server_info(bytes(32), host="127.0.0.1", port=4222, jetstream=True)
        self.sessions = Sessions(
            self.clock, Interest(), info, limits or NatsLimits(), self.reception
        )
        self.sharing = Sharing(self.sessions.hub, self.accounts, self.clock, self.sessions.session)
        self._clients: list[Client] = []

    def reload(self, credentials: Credentials, accounts: Iterable[Account] = ()) -> int:
        """Change who is believed and what is shared; returns how many clients had to go."""
        self.accounts.apply(accounts)
        self.reception.apply(credentials)
        self.sharing.renew()
        return self.sessions.apply()

    def client(self) -> "Client":
        """Connect, and say nothing."""
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.sessions.open(theirs.detach(), "127.0.0.1")
        client = Client(self, ours)
        self._clients.append(client)
        return client

    def user(self, user: str, password: str = "secret", **options: object) -> "Client":
        """Connect as this user."""
        client = self.client()
        said = client.connect(user=user, **{"pass": password}, **options)
        assert said == b"", said
        return client

    def settle(self) -> None:
        """Read and deliver until nothing moves."""
        for _ in range(4):
            self.sessions.hub.poll()

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.sessions.hub.poll()
        self.sessions.tick()

    def close(self) -> None:
        self.sessions.close()
        for client in self._clients:
            client.socket.close()


class Client:
    """One client's end of the wire."""

    def __init__(self, serving: GuardedSessions, ours: socket.socket) -> None:
        self.serving = serving
        self.socket = ours
        self.socket.setblocking(False)
        greeting = self.said()
        self.info = json.loads(greeting.removeprefix(b"INFO "))

    def connect(self, **options: object) -> bytes:
        """Send CONNECT; returns what came back."""
        return self.tell(b"CONNECT " + json.dumps({**QUIET, **options}).encode() + b"\r\n")

    def tell(self, data: bytes) -> bytes:
        """Send, let the server work, return what came back."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)
        self.serving.settle()
        return self.said()

    def said(self) -> bytes:
        """Return what has arrived; ``<closed>`` ends it when the server hung up."""
        parts = []
        while True:
            try:
                data = self.socket.recv(1 << 20)
            except BlockingIOError:
                return b"".join(parts)
            except ConnectionResetError:
                data = b""
            if not data:
                return b"".join(parts) + b"<closed>"
            parts.append(data)
