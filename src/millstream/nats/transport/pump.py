"""Pump: an open client's bytes between the hub and a link, with the brakes of both."""

from collections.abc import Callable

from millstream.nats.sessions import Sessions
from millstream.nats.transport.link import Link

# What leaves the outbox at a time. The rest stays there, where the hub counts it.
PIECE = 64 * 1024


class Pump:
    """Moves output while the socket takes it, and input while the hub takes it."""

    def __init__(
        self,
        sessions: Sessions,
        link: Link,
        cid: int,
        encode: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self.cid = cid
        self._hub = sessions.hub
        self._link = link
        self._encode = encode
        self._trace = sessions.trace(cid)

    def feed(self, data: bytes) -> None:
        """Give the hub what came."""
        if self._trace is None:
            self._hub.feed(self.cid, data)
            return
        for part in self._trace.incoming(data):
            self._hub.feed(self.cid, part)

    def pull(self) -> None:
        """Send until the outbox is empty or the socket is full."""
        while not self._link.full and not self._link.closed:
            data = self._hub.take(self.cid, PIECE)
            if not data:
                return
            if self._trace is not None:
                self._trace.outgoing(data)
            self._link.send(data if self._encode is None else self._encode(data))

    def brake(self) -> None:
        """Read from the client, unless what it publishes into is behind."""
        if self._hub.is_stalled(self.cid):
            self._link.pause()
        else:
            self._link.resume()
