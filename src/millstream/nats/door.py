"""NatsDoor: the NATS port as one part, ready to start and stop."""

import asyncio

from millstream.clock import Clock
from millstream.kernel._hub import Hub
from millstream.kernel._interest import Interest
from millstream.nats.listener import Listener
from millstream.nats.session import NatsLimits
from millstream.nats.sessions import Sessions
from millstream.wire.info import ServerInfo

_HUB_TICK = 0.05
_TURNS_PER_SECOND = 20


class NatsDoor:
    """Serves NATS clients over TCP into one subject space."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        interest: Interest,
        info: ServerInfo,
        limits: NatsLimits | None = None,
    ) -> None:
        self.sessions = Sessions(clock, interest, info, limits or NatsLimits())
        self._loop = loop
        self._listener = Listener(loop, self.sessions.open)
        self._timer: asyncio.TimerHandle | None = None
        self._turns = 0

    @property
    def hub(self) -> Hub:
        """The hub that carries this door's messages; sinks publish through it."""
        return self.sessions.hub

    def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen and serve; return the bound address, which INFO then names."""
        bound = self._listener.start(host, port)
        self.sessions.info = self.sessions.info.with_(host=bound[0], port=bound[1])
        self._loop.add_reader(self.hub.fd, self.hub.poll)
        self._timer = self._loop.call_later(_HUB_TICK, self._turn)
        return bound

    def stop_listening(self) -> None:
        """Take no more clients; those that are here stay."""
        self._listener.stop()

    def tick(self) -> None:
        """Look at every deadline now; the running door does so once a second."""
        self.hub.tick()
        self.sessions.tick()

    def stop(self) -> None:
        """Stop listening and close every connection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._listener.stop()
        if self.hub.fd >= 0:
            self._loop.remove_reader(self.hub.fd)
        self.sessions.close()

    def _turn(self) -> None:
        self._turns += 1
        if self._turns % _TURNS_PER_SECOND == 0:
            self.tick()
        else:
            self.hub.tick()
        self._timer = self._loop.call_later(_HUB_TICK, self._turn)
