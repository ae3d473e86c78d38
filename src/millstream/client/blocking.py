"""A blocking NATS client over one socket, for one thread at a time.

It works against any NATS server. Nothing runs in the background: the socket is read while a
call waits, so an idle connection answers the server's pings only when it is used again.
"""

import os
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType

import msgspec

from millstream import __version__
from millstream.client import headers as header_block
from millstream.client.address import Address, parse_urls
from millstream.client.errors import (
    AuthenticationFailed,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    InvalidSubject,
    NoResponders,
    PayloadTooLarge,
    PermissionDenied,
    RequestTimeout,
    SlowSubscription,
)
from millstream.client.login import Login
from millstream.client.parser import Err, Info, Message, Op, Parser, Ping, Pong, ProtocolError
from millstream.wire.info import DEFAULT_URL

DEFAULT_TIMEOUT = 5.0
SEND_AT = 64 * 1024
READ_SIZE = 256 * 1024
MAX_SUBJECT = 3 * 1024  # the server's control line is 4 KiB and carries more than the subject
PENDING_LIMIT = 64 * 1024 * 1024


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the server says about itself on connect."""

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    max_payload: int = 1024 * 1024
    headers: bool = False
    jetstream: bool = False
    auth_required: bool = False
    tls_required: bool = False
    client_id: int = 0
    nonce: str = ""


class Subscription:
    """Messages for one subject, in order; iterate over it or take them one by one."""

    def __init__(self, client: "Client", sid: int, subject: str, pending_limit: int) -> None:
        self.subject = subject
        self.sid = sid
        self._client = client
        self._messages: deque[Message] = deque()
        self._pending = 0
        self._pending_limit = pending_limit
        self._dropped = 0

    def next(self, timeout: float | None = None) -> Message:
        """Return the next message, waiting ``timeout`` seconds, or for ever when None."""
        deadline = _deadline(timeout)
        while not self._messages:
            self._raise_if_dropped()
            if not self._client._read(_left(deadline)):
                raise RequestTimeout(f"no message on '{self.subject}' within {timeout:g} s")
        message = self._messages.popleft()
        self._pending -= len(message.payload)
        return message

    def messages(self, timeout: float | None = None) -> Iterator[Message]:
        """Yield messages until none arrives for ``timeout`` seconds; for ever when None."""
        while True:
            try:
                yield self.next(timeout)
            except RequestTimeout:
                return

    def __iter__(self) -> Iterator[Message]:
        """Yield messages for as long as the connection lasts."""
        return self.messages()

    def unsubscribe(self, after: int = 0) -> None:
        """End the subscription now, or once the server has delivered ``after`` messages."""
        self._client._unsubscribe(self, after)

    def _offer(self, message: Message) -> None:
        if self._pending + len(message.payload) > self._pending_limit:
            self._dropped += 1
            return
        self._messages.append(message)
        self._pending += len(message.payload)

    def _raise_if_dropped(self) -> None:
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            raise SlowSubscription(self.subject, dropped)


class ReplyInbox:
    """Where the answers to a client's requests arrive: one subscription for all of them."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._prefix = f"_INBOX.{os.urandom(11).hex()}"
        self._replies: Subscription | None = None
        self._requests = 0

    def open(self) -> tuple[str, Subscription]:
        """Return a subject for the answers to one request, and who receives them."""
        if self._replies is None:
            self._replies = self._client.subscribe(f"{self._prefix}.*")
        self._requests += 1
        return f"{self._prefix}.{self._requests}", self._replies


class Client:
    """One connection. Close it, or use it as a context manager; it is not thread-safe."""

    def __init__(
        self, sock: socket.socket, address: Address, timeout: float, login: Login | None = None
    ) -> None:
        self.address = address
        self._login = login or Login()
        self.info = ServerInfo()
        self._sock = sock
        self._timeout = timeout
        self._parser = Parser()
        self._out = bytearray()
        self._subscriptions: dict[int, Subscription] = {}
        self._errors: deque[ClientError] = deque()
        self._pings = 0
        self._pongs = 0
        self._last_sid = 0
        self._inbox = ReplyInbox(self)
        self._closed = False
        self._greeted = False

    def publish(
        self,
        subject: str,
        payload: bytes,
        headers: Mapping[str, str | Sequence[str]] | None = None,
        reply: str | None = None,
    ) -> None:
        """Queue a message; it is on its way once the buffer fills, or after ``flush``."""
        _check_subject(subject)
        if reply is not None:
            _check_subject(reply)
        block = header_block.encode(headers) if headers else b""
        size = len(block) + len(payload)
        if size > self.info.max_payload:
            raise PayloadTooLarge(
                f"message of {size} bytes is above the server's limit of {self.info.max_payload}"
            )
        words = [subject, reply] if reply else [subject]
        words += [str(len(block)), str(size)] if block else [str(size)]
        verb = "HPUB" if block else "PUB"
        self._queue(f"{verb} {' '.join(words)}\r\n".encode(), block, payload, b"\r\n")
        if len(self._out) >= SEND_AT:
            self._send(self._timeout)

    def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = DEFAULT_TIMEOUT,
        headers: Mapping[str, str | Sequence[str]] | None = None,
    ) -> Message:
        """Publish and return the first reply."""
        inbox, replies = self._inbox.open()
        self.publish(subject, payload, headers, reply=inbox)
        deadline = _deadline(timeout)
        self._send(timeout)
        message = self._reply_to(inbox, replies, subject, timeout, deadline)
        if message.status == 503 and not message.payload:
            raise NoResponders(f"nobody answers requests on '{subject}'")
        return message

    def subscribe(
        self, subject: str, queue: str | None = None, *, pending_limit: int = PENDING_LIMIT
    ) -> Subscription:
        """Register interest; after ``flush`` the server is known to have taken it."""
        _check_subject(subject)
        if queue is not None:
            _check_subject(queue)
        self._last_sid += 1
        subscription = Subscription(self, self._last_sid, subject, pending_limit)
        self._subscriptions[subscription.sid] = subscription
        group = f" {queue}" if queue else ""
        self._queue(f"SUB {subject}{group} {subscription.sid}\r\n".encode())
        self._send(self._timeout)
        return subscription

    def flush(self, timeout: float | None = None) -> None:
        """Return once the server has handled everything sent so far; raise what it refused."""
        limit = self._timeout if timeout is None else timeout
        deadline = _deadline(limit)
        self._queue(b"PING\r\n")
        self._pings += 1
        awaited = self._pings
        self._send(limit)
        while self._pongs < awaited:
            if not self._read(_left(deadline)):
                raise RequestTimeout(f"{self.address} did not answer a ping within {limit:g} s")
        self._raise_errors()

    def close(self) -> None:
        """Send what is queued, if the server still takes it, and close the socket."""
        if self._closed:
            return
        try:
            self._send(self._timeout)
        except ClientError:
            pass  # the caller is leaving: `flush` is the call that tells whether it arrived
        finally:
            self._closed = True
            self._sock.close()

    def __enter__(self) -> "Client":
        """Return the open client."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self.close()

    # -- connecting -----------------------------------------------------------------------

    def _handshake(self, name: str | None) -> None:
        deadline = _deadline(self._timeout)
        while not self._greeted:
            if not self._read(_left(deadline)):
                raise ConnectFailed(
                    f"{self.address} accepted the connection but sent no greeting: "
                    "is it a NATS server?"
                )
        if self.info.tls_required or self.address.tls:
            self._upgrade()
        said = _connect_options(self.address, name) | self._login.answer(self.info.nonce)
        self._queue(b"CONNECT ", msgspec.json.encode(said), b"\r\n")
        self.flush()

    def _upgrade(self) -> None:
        context = self._login.tls()
        self._sock.settimeout(self._timeout)
        try:
            self._sock = context.wrap_socket(self._sock, server_hostname=self.address.host)
        except (OSError, ssl.SSLError) as error:
            raise ConnectFailed(f"TLS with {self.address} failed: {_reason(error)}") from error

    # -- moving bytes ---------------------------------------------------------------------

    def _queue(self, *parts: bytes) -> None:
        if self._closed:
            raise ConnectionLost("the connection is closed")
        for part in parts:
            self._out += part

    def _send(self, timeout: float | None) -> None:
        """Send the queue, reading meanwhile: a server that cannot write to us may stop reading."""
        deadline = _deadline(timeout)
        while self._out:
            self._receive(0)
            try:
                self._sock.settimeout(0)
                sent = self._sock.send(self._out)
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                self._wait_for_room(deadline, timeout)
            except OSError as error:
                raise self._lost(error) from error
            else:
                del self._out[:sent]

    def _wait_for_room(self, deadline: float | None, timeout: float | None) -> None:
        poll, left = select.poll(), _left(deadline)  # select() takes no descriptor above 1023
        poll.register(self._sock, select.POLLIN | select.POLLOUT)
        if not poll.poll(None if left is None else 1000 * left):
            raise RequestTimeout(f"{self.address} took no data for {timeout:g} s")

    def _read(self, timeout: float | None) -> bool:
        """Handle what arrives, answering pings; False when nothing did within ``timeout``."""
        self._send(self._timeout)  # whoever waits means what was queued before
        arrived = self._receive(timeout)
        self._send(self._timeout)
        return arrived

    def _receive(self, timeout: float | None) -> bool:
        if self._closed:
            raise ConnectionLost("the connection is closed")
        self._sock.settimeout(timeout)
        try:
            data = self._sock.recv(READ_SIZE)
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError as error:
            raise self._lost(error) from error
        if not data:
            raise self._lost(None)
        self._handle_all(data)
        return True

    def _handle_all(self, data: bytes) -> None:
        try:
            for op in self._parser.feed(data):
                self._handle(op)
        except (ProtocolError, msgspec.DecodeError) as error:
            kind = ConnectionLost if self._greeted else ConnectFailed
            raise kind(f"{self.address} does not speak NATS: {error}") from error

    def _handle(self, op: Op) -> None:
        match op:
            case Message():
                if (subscription := self._subscriptions.get(op.sid)) is not None:
                    subscription._offer(op)
            case Ping():
                self._out += b"PONG\r\n"
            case Pong():
                self._pongs += 1
            case Info():
                self.info = msgspec.json.decode(op.json, type=ServerInfo)
                self._greeted = True
            case Err():
                self._errors.append(_as_error(op.text, self.address))
            case _:
                pass

    def _lost(self, error: OSError | None) -> ClientError:
        """Return why the connection ended: the server's last words beat the socket's."""
        if self._errors:
            return self._errors.popleft()
        why = f": {_reason(error)}" if error else ""
        return ConnectionLost(f"{self.address} closed the connection{why}")

    def _raise_errors(self) -> None:
        if self._errors:
            raise self._errors.popleft()

    # -- requests -------------------------------------------------------------------------

    def _reply_to(
        self,
        inbox: str,
        replies: Subscription,
        subject: str,
        timeout: float,
        deadline: float | None,
    ) -> Message:
        """Wait for the answer to this request, passing over late answers to earlier ones."""
        while True:
            try:
                while not replies._messages and self._read(_left(deadline)):
                    self._raise_refusal(subject)
                message = replies.next(0)
            except RequestTimeout:
                self._raise_errors()
                raise RequestTimeout(f"no reply on '{subject}' within {timeout:g} s") from None
            if message.subject == inbox:
                return message

    def _raise_refusal(self, subject: str) -> None:
        """Raise what the server has said about this request's subject; no answer will come."""
        for error in self._errors:
            if isinstance(error, PermissionDenied) and f'"{subject}"' in str(error):
                self._errors.remove(error)
                raise error

    def _unsubscribe(self, subscription: Subscription, after: int) -> None:
        limit = f" {after}" if after else ""
        self._queue(f"UNSUB {subscription.sid}{limit}\r\n".encode())
        if not after:
            self._subscriptions.pop(subscription.sid, None)
        self._send(self._timeout)


def connect(
    url: str | None = None,
    *,
    name: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    login: Login | None = None,
) -> Client:
    """Connect to the first server of ``url`` that answers.

    ``url`` is ``nats://[user:password@|token@]host[:port]``, several separated by commas;
    without one, ``$NATS_URL`` or the default port on this machine. ``timeout`` bounds each
    step of connecting and later ``flush``. ``login`` adds to what the url says.
    """
    failure: ClientError | None = None
    for address in parse_urls(url or os.environ.get("NATS_URL") or DEFAULT_URL):
        try:
            return _open(address, name, timeout, login)
        except ClientError as error:
            failure = error
    assert failure is not None  # parse_urls returns at least one address
    raise failure


def _open(address: Address, name: str | None, timeout: float, login: Login | None) -> Client:
    try:
        sock = socket.create_connection((address.host, address.port), timeout)
    except OSError as error:
        raise ConnectFailed(_unreachable(address, error)) from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client = Client(sock, address, timeout, login)
    try:
        client._handshake(name)
    except BaseException:
        client._out.clear()
        client.close()
        raise
    return client


def _unreachable(address: Address, error: OSError) -> str:
    cause = f"cannot reach {address}: {_reason(error)}"
    if isinstance(error, ConnectionRefusedError):
        return f"{cause}. Start a server with `millstream serve`, or name another with --url"
    return f"{cause}. Check the address, or name another server with --url"


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "no TLS is spoken there; use nats://"
    return (error.strerror or str(error)).lower()


def _connect_options(address: Address, name: str | None) -> dict[str, object]:
    options: dict[str, object] = {
        "verbose": False,
        "pedantic": False,
        "lang": "python",
        "version": __version__,
        "protocol": 1,
        "headers": True,
        "no_responders": True,
        "name": name or "millstream client",
    }
    if address.token is not None:
        options["auth_token"] = address.token
    if address.user is not None:
        options |= {"user": address.user, "pass": address.password or ""}
    return options


def _as_error(text: str, address: Address) -> ClientError:
    lowered = text.lower()
    if lowered.startswith("permissions violation"):
        return PermissionDenied(f"{address} refused: {text}")
    if "authorization violation" in lowered or "authentication" in lowered:
        return AuthenticationFailed(
            f"{address} refused the credentials: {text}. "
            "Give them in the url: nats://user:password@host or nats://token@host"
        )
    return ConnectionLost(f"{address} reported: {text}")


def _check_subject(subject: str) -> None:
    if not subject or len(subject.encode()) > MAX_SUBJECT:
        raise InvalidSubject(f"a subject has 1 to {MAX_SUBJECT} bytes, not {len(subject)}")
    if any(c.isspace() for c in subject) or "\0" in subject:
        raise InvalidSubject(f"a subject holds no white space: {subject!r}")


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
