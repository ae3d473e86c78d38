from collections.abc import Callable
from typing import Protocol

from millstream.kernel._interest import Interest
from millstream.kernel._linked import Linked

# Why input is refused (Handler.on_error); the connection is closed behind each of them.
UNKNOWN_OPERATION: int
MALFORMED: int
PAYLOAD_TOO_LARGE: int
LINE_TOO_LONG: int
HEADERS_NOT_SUPPORTED: int

# Why a connection ended (Handler.on_closed); a door may use codes of its own from 100.
CLIENT_CLOSED: int
WRITE_FAILED: int
SLOW_CONSUMER: int
PROTOCOL_ERROR: int
SERVER_SHUTDOWN: int
INTERNAL_ERROR: int
WRITE_DEADLINE: int

# What Handler.may_publish answers.
DENIED: int
ALLOWED: int  # and until the subject changes
ALLOWED_ONCE: int  # ask again for the next message

class Handler(Protocol):
    """What the NATS door implements: control operations, never messages.

    One that configures ``track_replies`` also has ``on_delivered_reply(cid, reply)``: the reply
    subjects of messages delivered to such a connection, told before ``may_publish`` is asked.
    Any of these may call the hub back, and may close any connection.
    """

    def on_connect(self, cid: int, options: bytes) -> None: ...
    def on_sub(self, cid: int, subject: bytes, queue: bytes, sid: bytes) -> None: ...
    def on_unsub(self, cid: int, sid: bytes, max_msgs: int) -> None: ...
    def on_ping(self, cid: int) -> None:
        """Called for the first PING of a connection only, after its PONG was queued."""
    def on_pong(self, cid: int) -> None: ...
    def on_info(self, cid: int, info: bytes) -> None: ...
    def on_error(self, cid: int, code: int) -> None: ...
    def on_closed(self, cid: int, reason: int) -> None: ...
    def on_output(self, cid: int) -> None:
        """Called when a fed connection has bytes to ``take``, or may be read from again."""
    def may_publish(self, cid: int, subject: bytes) -> int:
        """Asked for a ``guarded`` connection: DENIED, ALLOWED (False, True) or ALLOWED_ONCE.

        After DENIED and ALLOWED_ONCE each message is asked for. The handler says -ERR itself.
        """
    def map_subject(self, cid: int, subject: bytes) -> bytes:
        """Asked for each message of a ``mapped`` connection: return where it really goes.

        What is returned is what the permissions are about, and what receivers see.
        """
    def on_wish(
        self, cid: int, account: bytes, subject: bytes, queue: bytes, weight: int, origin: bytes
    ) -> None:
        """Called when a link tells what it wants; a weight of 0 means that it wants it no more."""
    def on_err(self, cid: int, text: bytes) -> None:
        """Called when a link says -ERR."""
    def space_of(self, cid: int, account: bytes) -> Interest | None:
        """Asked for the subjects of an account that a route names; None drops its messages."""

class Hub(Linked):
    """Every NATS connection's bytes: parse, match, copy, flush."""

    def __init__(
        self,
        handler: Handler,
        *,
        max_payload: int = ...,
        max_pending: int = ...,
        decorate: Callable[[bytes, bytes, bytes, bytes], bytes] | None = None,
        write_deadline: float = 10.0,
        max_control_line: int = 4096,
        holds_publishers: bool = True,
        on_closing: Callable[[int, int], None] | None = None,
    ) -> None: ...
    def feed(self, cid: int, data: bytes) -> None: ...
    def take(self, cid: int, most: int = 0) -> bytes: ...
    def poll(self) -> None: ...
    def defer(self, call: Callable[[], object]) -> bool: ...
    def post(self, call: Callable[[], object]) -> bool: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...
