from collections.abc import Callable
from typing import Any, Protocol, final

from millstream.kernel._batch import Batch
from millstream.kernel._frames import Frames
from millstream.kernel._interest import Interest
from millstream.kernel._links import Wishes
from millstream.kernel._phrases import Phrases

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

# Why a client did not get a message that Hub.witness tells of.
NO_ECHO: int
HIDDEN: int
ENOUGH: int
GONE: int

class Handler(Protocol):
    """What the door implements: control operations, never messages.

    One that configures ``track_replies`` also has ``on_delivered_reply(cid, reply)``: the reply
    subjects of messages delivered to such a connection, told before ``may_publish`` is asked.
    Any of these may call the hub back, and may close any connection.
    """

    def on_connect(self, cid: int, options: bytes) -> None: ...
    def on_sub(self, cid: int, subject: bytes, queue: bytes, sid: bytes) -> None: ...
    def on_unsub(self, cid: int, sid: bytes, max_msgs: int) -> None: ...
    def on_ping(self, cid: int) -> None:
        """Called for the first PING of a connection, which the handler answers or refuses.

        The hub answers all others.
        """
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
    def may_reply(self, cid: int, reply: bytes) -> int:
        """Asked about the reply subject of a message, for a ``choosy`` connection.

        ALLOWED is said of all reply subjects that differ only in their last token.
        """
    def may_schedule(self, cid: int, headers: bytes) -> bool:
        """Asked about a ``guarded`` connection's message that has others published later."""
    def traced(
        self, cid: int, subject: bytes, reply: bytes, headers: bytes, payload: bytes
    ) -> bool:
        """Asked for a message whose headers ask for a trace; True when it is seen to whole.

        Nothing has been mapped or judged yet.
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

@final
class Hub:
    """Every client's bytes: parse, match, copy, flush."""

    max_payload: int
    """Of connections to come; ``configure`` changes that of others."""
    max_control_line: int
    """Of an operation's arguments."""
    write_deadline: float
    """After so many seconds without taking anything a client is closed."""
    holds_publishers: bool
    """Whether publishers wait a moment for a client whose outbox is nearly full."""
    now_ns: int
    """What activity is stamped with; whoever wants to know keeps it current."""

    def __init__(
        self,
        handler: Handler,
        phrases: Phrases,
        *,
        max_payload: int = ...,
        max_pending: int = ...,
        decorate: Callable[[bytes, bytes, bytes, bytes], bytes] | None = None,
        write_deadline: float = 10.0,
        max_control_line: int = 4096,
        holds_publishers: bool = True,
        on_closing: Callable[[int, int], None] | None = None,
        slice_ns: int = 1_000_000,
    ) -> None:
        """``on_closing`` hears of cid and reason before a connection loses what it has.

        A connection that keeps the handler busy for ``slice_ns`` goes on in the next turn: 0 is one
        call of the handler in each.
        """
    @property
    def fd(self) -> int: ...
    @property
    def wishes(self) -> Wishes: ...
    def attach(self, fd: int, interest: Interest) -> int: ...
    def attach_fed(self, interest: Interest) -> int: ...
    def move(self, cid: int, interest: Interest) -> None: ...
    def configure(
        self,
        cid: int,
        *,
        verbose: bool,
        pedantic: bool,
        echo: bool,
        headers: bool,
        no_responders: bool,
        guarded: bool = False,
        choosy: bool = False,
        track_replies: bool = False,
        mapped: bool = False,
        parents: bool = False,
        max_payload: int | None = None,
    ) -> None: ...
    def write(self, cid: int, data: bytes) -> None: ...
    def close_connection(self, cid: int, reason: int) -> None: ...
    def tick(self, now: float = -1.0) -> None: ...
    def feed(self, cid: int, data: bytes) -> None: ...
    def hold(self, cid: int) -> None: ...
    def go_on(self, cid: int) -> None: ...
    def take(self, cid: int, most: int = 0) -> bytes: ...
    def is_stalled(self, cid: int) -> bool: ...
    def take_activity(self, cid: int) -> bool: ...
    def connections(self) -> list[int]: ...
    def connection_stats(self, cid: int) -> dict[str, int]: ...
    def stats(self) -> dict[str, int]: ...
    def subscribe(
        self, cid: int, subject: bytes, queue: bytes, sid: bytes, deny: tuple[bytes, ...] = ()
    ) -> bool: ...
    def unsubscribe(self, cid: int, sid: bytes, max_msgs: int) -> bool: ...
    def unsubscribe_all(self, cid: int) -> None: ...
    def subscriptions(
        self, cid: int, most: int = -1
    ) -> list[tuple[bytes, bytes, bytes, int, int]]: ...
    def publish(
        self,
        interest: Interest,
        subject: bytes,
        reply: bytes,
        headers: bytes,
        payload: bytes,
        shown: bytes = b"",
        origin: int = 0,
    ) -> int: ...
    def witness(
        self,
        interest: Interest,
        subject: bytes,
        reply: bytes,
        headers: bytes,
        payload: bytes,
        origin: int,
        really: bool,
    ) -> list[tuple[int, bytes, bytes, int] | tuple[object, Any]]: ...
    def serve(self, slot: object) -> None: ...
    def publish_acks(
        self,
        interest: Interest,
        batch: Batch,
        start: int,
        count: int,
        first_seq: int,
        prefix: bytes,
        suffix: bytes,
    ) -> int: ...
    def publish_frames(
        self,
        interest: Interest,
        routes: list[bytes],
        frames: Frames,
        start: int,
        replies: list[bytes],
    ) -> int: ...
    def publish_record(
        self, interest: Interest, reply: bytes, frames: Frames, i: int, about: bytes
    ) -> int: ...
    def room(self, interest: Interest, subject: bytes) -> int: ...
    def heard_for(self, interest: Interest, subject: bytes) -> int: ...
    def poll(self) -> None: ...
    def flush(self) -> None: ...
    def defer(self, call: Callable[[], object]) -> bool: ...
    def post(self, call: Callable[[], object]) -> bool: ...
    def close(self) -> None: ...
