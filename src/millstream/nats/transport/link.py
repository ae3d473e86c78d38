"""Link: an accepted socket on the loop, whose bytes Python moves in plain or through TLS.

What the bytes mean is its owner's business. A link goes through ``sniff`` (one byte is looked at,
none is taken), ``secure`` (the handshake) and ``receive`` as its owner says.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

READ_SIZE = 256 * 1024
_LOOK_AGAIN = 0.01  # the rest of a head is on its way
_CLOSING_READS = 16  # unread input would turn what was sent last into a reset
_LATER = (BlockingIOError, InterruptedError, ssl.SSLWantReadError)


class LinkOwner(Protocol):
    """What a link tells of."""

    def sniffed(self, first: int) -> None:
        """The first byte has come, and waits to be read."""
        ...

    def secured(self, certificate: bytes | None) -> None:
        """The handshake is done; ``certificate`` is the client's, if it showed one (DER)."""
        ...

    def received(self, data: bytes) -> None:
        """Bytes have come."""
        ...

    def drained(self) -> None:
        """Everything given to ``send`` is gone."""
        ...

    def ended(self, why: str) -> None:
        """Nothing more will come or go; the owner closes the link."""
        ...


class Link:
    """Moves bytes until it is closed; every callback comes from the loop, none from ``send``."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client: socket.socket,
        buffer: memoryview,
        owner: LinkOwner,
    ) -> None:
        self._loop = loop
        self._socket = client
        self._buffer = buffer
        self._owner = owner
        self._step: Callable[[], None] | None = None  # what a readable socket means now
        self._unsent: deque[memoryview] = deque()
        self._reading = False
        self._writing = False
        self._secure = False
        self.closed = False

    @property
    def full(self) -> bool:
        """Whether bytes wait here because the socket took no more."""
        return bool(self._unsent)

    @property
    def port(self) -> int:
        """The client's port, 0 where there is none to tell."""
        try:
            address = self._socket.getpeername()
        except OSError:
            return 0
        return int(address[1]) if isinstance(address, tuple) else 0

    @property
    def tls_terms(self) -> tuple[str, str]:
        """The version of TLS and the cipher that were agreed on, empty in plain text."""
        if not isinstance(self._socket, ssl.SSLSocket):
            return "", ""
        cipher = self._socket.cipher()
        version = (self._socket.version() or "").removeprefix("TLSv")
        return version, cipher[0] if cipher is not None else ""

    def sniff(self) -> None:
        """Wait for the first byte."""
        self._read_by(self._sniff)

    def take_head(self, measure: Callable[[bytes], int | None]) -> bool:
        """Take so many of the bytes that have come as ``measure`` says; the rest stays.

        Where it says None, what came is not enough: sniff again after a moment, and answer False.
        """
        try:
            size = measure(self._socket.recv(READ_SIZE, socket.MSG_PEEK))
        except OSError:
            size = None
        if size is None:
            self._loop.call_later(_LOOK_AGAIN, self.sniff)
            return False
        self._socket.recv(size)
        return True

    def secure(self, context: ssl.SSLContext) -> None:
        """Begin the handshake as a server."""
        self.pause()
        try:
            self._socket = context.wrap_socket(
                self._socket, server_side=True, do_handshake_on_connect=False
            )
        except (OSError, ValueError) as error:  # the client is gone already
            self._loop.call_soon(self._lost, str(error))
            return
        self._read_by(self._shake)

    def receive(self) -> None:
        """Read from here on."""
        self._secure = isinstance(self._socket, ssl.SSLSocket)
        self._read_by(self._receive)

    def pause(self) -> None:
        """Leave what comes in the socket; harmless when repeated."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._socket.fileno())

    def resume(self) -> None:
        """Read again; harmless when repeated."""
        if self._reading or self.closed or self._step is None:
            return
        self._reading = True
        self._loop.add_reader(self._socket.fileno(), self._readable)
        if self._secure:  # TLS may hold bytes that make no socket readable
            self._loop.call_soon(self._readable)

    def send(self, data: bytes) -> None:
        """Send as much as the socket takes; the rest waits here, so look at ``full`` before."""
        if not self.closed and data:
            self._unsent.append(memoryview(data))
            if len(self._unsent) == 1:
                self._flush()

    def close(self) -> None:
        """Hang up so that what was sent arrives; what waits here is dropped."""
        if self.closed:
            return
        self.pause()
        self._stop_writing()
        self.closed = True
        unsent, self._unsent = bool(self._unsent), deque()
        try:
            if self._secure and not unsent:
                self._say_goodbye()
            self._socket.shutdown(socket.SHUT_WR)
            self._drop_input()
        except (OSError, ValueError):
            pass  # the client was first
        self._socket.close()

    def _say_goodbye(self) -> None:
        assert isinstance(self._socket, ssl.SSLSocket)
        with suppress(OSError, ValueError):  # sent, and the answer is not waited for
            self._socket.unwrap()

    def _drop_input(self) -> None:
        for _ in range(_CLOSING_READS):
            if not socket.socket.recv_into(self._socket, self._buffer):
                return

    def _read_by(self, step: Callable[[], None]) -> None:
        self.pause()  # so that bytes which TLS holds already are looked at
        self._step = step
        self.resume()

    def _readable(self) -> None:
        if self._reading and self._step is not None:
            self._step()

    def _sniff(self) -> None:
        try:
            first = self._socket.recv(1, socket.MSG_PEEK)
        except _LATER:
            return
        except OSError as error:
            self._lost(str(error))
            return
        self.pause()
        if first:
            self._owner.sniffed(first[0])
        else:
            self._lost("closed by the client")

    def _shake(self) -> None:
        assert isinstance(self._socket, ssl.SSLSocket)
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLWantWriteError:
            self._start_writing()
            return
        except (OSError, ValueError) as error:
            self._lost(_reason(error))
            return
        self._stop_writing()
        self.pause()
        self._owner.secured(self._socket.getpeercert(binary_form=True))

    def _receive(self) -> None:
        """Read what there is, up to a buffer full, and hand it over in one piece."""
        size, why, buffer = 0, "", self._buffer
        try:
            while size < READ_SIZE:
                got = self._socket.recv_into(buffer[size:])
                size += got
                if got == 0:
                    why = "closed by the client"
                if not self._secure or got == 0:
                    break
        except _LATER:
            pass
        except ssl.SSLWantWriteError:
            self._start_writing()
        except (OSError, ValueError) as error:
            why = _reason(error)
        if size:
            self._owner.received(bytes(buffer[:size]))
        if why:
            self._lost(why)
        elif size == READ_SIZE and self._secure and self._reading:
            self._loop.call_soon(self._readable)

    def _lost(self, why: str) -> None:
        if not self.closed:
            self.pause()
            self._stop_writing()
            self._owner.ended(why)

    def _flush(self) -> None:
        unsent = self._unsent
        try:
            while unsent:
                sent = self._socket.send(unsent[0])
                if sent < len(unsent[0]):
                    unsent[0] = unsent[0][sent:]
                else:
                    unsent.popleft()
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._start_writing()
        except (OSError, ValueError) as error:
            unsent.clear()
            self._loop.call_soon(self._lost, _reason(error))

    def _start_writing(self) -> None:
        if not self._writing and not self.closed:
            self._writing = True
            self._loop.add_writer(self._socket.fileno(), self._writable)

    def _stop_writing(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._socket.fileno())

    def _writable(self) -> None:
        if self.closed or not self._writing:
            return
        self._stop_writing()
        if self._unsent:
            self._flush()
            if not self._unsent and not self.closed:
                self._owner.drained()
        elif self._step is not None:
            self._step()  # TLS had to write before it could read on


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
