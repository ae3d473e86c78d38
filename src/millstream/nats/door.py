"""NatsDoor: the NATS port and its WebSocket twin as one part, ready to start and stop."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from millstream.clock import Clock
from millstream.kernel._hub import Hub
from millstream.kernel._interest import Interest
from millstream.listener import Accepted, Listener
from millstream.nats.authenticator import Authenticator
from millstream.nats.session import NatsLimits
from millstream.nats.sessions import Sessions
from millstream.nats.transport.handshakes import Handshakes
from millstream.nats.transport.trace import Tracing
from millstream.supervisor import Supervisor
from millstream.wire.info import ServerInfo

if TYPE_CHECKING:
    from collections.abc import Sequence
    from socket import socket

    from millstream.nats.transport.proxies import Proxies
    from millstream.nats.transport.tls import Tls
    from millstream.nats.transport.tls_transport import TlsPort
    from millstream.nats.transport.upgrade import WebsocketTerms

_HUB_TICK = 0.05
_TURNS_PER_SECOND = 20


_Port = TypeVar("_Port")


class _Client(Protocol):
    def start(self) -> None: ...


class NatsDoor:
    """Serves NATS clients over TCP, TLS and WebSocket."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        interest: Interest,
        info: ServerInfo,
        limits: NatsLimits | None = None,
        reception: Authenticator | None = None,
        tls: "TlsPort | None" = None,
        tracing: Tracing | None = None,
        supervisor: Supervisor | None = None,
        proxies: "Proxies | None" = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """With ``tls`` the NATS port asks for a handshake, or offers one; INFO says which.

        ``check`` comes before each turn of the hub: it does not return where nothing may be said.
        """
        limits = limits or NatsLimits()
        self.sessions = Sessions(clock, interest, _announced(info, tls), limits, reception, tracing)
        self._limits = limits
        self._loop = loop
        self._entrance = Handshakes(loop, clock, self.sessions, limits.max_connections)
        self._check = check
        self._listener = Listener(loop, self._accepting(tls, proxies))
        self._websocket: Listener | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._turns = 0
        supervisor = supervisor or Supervisor()
        self._tick_hub = supervisor.repeated("the NATS hub's tick", self.hub.tick)
        self._tick_clients = supervisor.repeated("the deadlines of NATS clients", self.tick)
        self.address = ("", 0)  # where it listens

    @property
    def hub(self) -> Hub:
        """The hub that carries this door's messages; sinks publish through it."""
        return self.sessions.hub

    @property
    def arriving(self) -> int:
        """How many clients are on their way in: a handshake or a request is under way."""
        return len(self._entrance)

    def start(self, host: str, port: int, ready: "Sequence[socket]" = ()) -> tuple[str, int]:
        """Listen and serve; return the bound address, which INFO then names.

        ``ready`` are sockets that listen there already.
        """
        self.address = bound = self._listener.start(host, port, ready)
        self.sessions.info = self.sessions.info.with_(host=bound[0], port=bound[1])
        self.serve()
        return bound

    def serve(self) -> None:
        """Serve who is here, and look at deadlines from now on."""
        poll = self.hub.poll if self._check is None else partial(_checked, self._check, self.hub)
        self._loop.add_reader(self.hub.fd, poll)
        self._timer = self._loop.call_later(_HUB_TICK, self._turn)

    def start_websocket(
        self, host: str, port: int, terms: "WebsocketTerms", tls: "Tls | None"
    ) -> tuple[str, int]:
        """Listen for clients that speak NATS in WebSocket frames; return the bound address."""
        from millstream.nats.transport.websocket import (  # pays only if used
            WebsocketClient,
            WebsocketPort,
        )
        from millstream.wire.websocket import apply_mask

        apply_mask(b"", bytes(4))  # the import takes 50 ms, which no client shall wait for
        served = WebsocketPort(terms, tls)

        def accepted(fd: int, peer: str) -> None:
            self._arrive(WebsocketClient, served, fd, peer)

        self._websocket = Listener(self._loop, accepted)
        bound = self._websocket.start(host, port)
        served = replace(served, host=bound[0], port=bound[1])
        return bound

    def stop_listening(self) -> None:
        """Take no more clients; those that are here stay."""
        self._listener.stop()
        if self._websocket is not None:
            self._websocket.stop()

    def tick(self) -> None:
        """Look at every deadline now; the running door does so once a second."""
        self.hub.tick()
        self._entrance.tick()
        self.sessions.tick()

    def stop(self) -> None:
        """Stop listening and close every connection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.stop_listening()
        self._entrance.close()
        if self.hub.fd >= 0:
            self._loop.remove_reader(self.hub.fd)
        self.sessions.close()

    def _accepting(self, tls: "TlsPort | None", proxies: "Proxies | None") -> Accepted:
        """Return what to do with a client: without TLS the hub takes the socket itself."""

        def accepted(fd: int, peer: str) -> None:
            if tls is not None:
                from millstream.nats.transport.tls_transport import TlsClient

                self._arrive(TlsClient, tls, fd, peer)
            elif self.sessions.tracing.on or proxies is not None:
                from millstream.nats.transport.fed_client import PlainClient

                self._arrive(PlainClient, proxies, fd, peer)
            else:
                self.sessions.open(fd, peer)

        return accepted

    def _arrive(
        self,
        kind: Callable[[Handshakes, _Port, int, str], _Client],
        port: _Port,
        fd: int,
        peer: str,
    ) -> None:
        if self._entrance.crowded:
            os.close(fd)
        else:
            kind(self._entrance, port, fd, peer).start()

    def _turn(self) -> None:
        self._turns += 1
        if self._check is not None:
            self._check()
        if self._turns % _TURNS_PER_SECOND == 0:
            self._tick_clients()
        else:
            self._tick_hub()
        self._timer = self._loop.call_later(_HUB_TICK, self._turn)


def _checked(check: Callable[[], None], hub: Hub) -> None:
    check()
    hub.poll()


def _announced(info: ServerInfo, tls: "TlsPort | None") -> ServerInfo:
    """Return INFO with what it says about TLS."""
    if tls is None:
        return info
    return info.with_(
        tls_required=not tls.optional, tls_available=tls.optional, tls_verify=tls.tls.terms.verify
    )
