"""EncryptedLink: moves the bytes of a link through TLS, as the hub only speaks plain text."""

import asyncio
import ssl
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from millstream.links.terms import DialTls
from millstream.nats.transport.closed import Closed

if TYPE_CHECKING:
    from millstream.kernel._hub import Hub

_PIECE = 64 * 1024


class EncryptedLink(asyncio.Protocol):
    """A carrier: the hub asks for output, the transport brings input."""

    def __init__(self, hub: "Hub") -> None:
        self._hub = hub
        self._cid = 0
        self._transport: asyncio.Transport | None = None
        self._is_full = False
        self._is_over = False

    def bind(self, cid: int) -> None:
        """Be the way of this connection from here on."""
        self._cid = cid

    @property
    def certificate(self) -> bytes | None:
        """What the other server showed (DER), None if nothing."""
        assert self._transport is not None
        shown = self._transport.get_extra_info("ssl_object")
        return None if shown is None else cast("bytes | None", shown.getpeercert(binary_form=True))

    # ---- the transport's side ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin once the handshake is done."""
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        """Feed the hub; stop reading while what the link sends into is behind."""
        self._hub.feed(self._cid, data)
        self._brake()

    def pause_writing(self) -> None:
        """Wait: the socket takes no more."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Send on."""
        self._is_full = False
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the other server's leave."""
        if not self._is_over:
            self._is_over = True
            self._hub.close_connection(self._cid, Closed.CLIENT)

    # ---- the hub's side ------------------------------------------------------------------------

    def output(self, cid: int) -> None:
        """Send what the hub has."""
        self._send()
        self._brake()

    def closed(self, reason: int) -> None:
        """Hang up."""
        self._is_over = True
        if self._transport is not None:
            self._transport.close()

    def _send(self) -> None:
        while self._transport is not None and not self._is_full and not self._is_over:
            data = self._hub.take(self._cid, _PIECE)
            if not data:
                return
            self._transport.write(data)

    def _brake(self) -> None:
        if self._transport is None or self._is_over:
            return
        if self._hub.is_stalled(self._cid):
            self._transport.pause_reading()
        elif not self._transport.is_reading():
            self._transport.resume_reading()


@lru_cache(maxsize=64)
def dial_context(terms: DialTls) -> ssl.SSLContext:
    """Return how we check and show certificates where we connect to."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if terms.ca_file:
        context.load_verify_locations(cafile=terms.ca_file)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if terms.cert_file:
        context.load_cert_chain(terms.cert_file, terms.key_file)
    if terms.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
