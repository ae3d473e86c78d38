"""Pull requests: what a client may ask for, and the line that they wait in."""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from millstream.consumers.config import ConsumerConfig, go_text
from millstream.wire.go_json import (
    BOOL,
    DURATION,
    INT,
    INT64,
    STRING,
    GoJsonError,
    Shape,
    unmarshal,
)

TOO_LARGE = "409 Message Size Exceeds MaxBytes"
COMPLETED = "409 Batch Completed"


class BadPull(Exception):
    """A request that is answered by a status at once: (code, description)."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"{code} {description}")
        self.code = code
        self.description = description


_Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _PullBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    expires: _Int64 = 0
    batch: _Int64 = 0
    max_bytes: _Int64 = 0
    no_wait: bool = False
    idle_heartbeat: _Int64 = 0
    group: str = ""
    min_pending: _Int64 = 0
    min_ack_pending: _Int64 = 0
    id: str = ""
    priority: _Int64 = 0


# Its fields without a name before them: so the reference words what does not fit.
PULL = Shape(
    "JSApiConsumerGetNextRequest",
    {
        "expires": DURATION,
        "batch": INT,
        "max_bytes": INT,
        "no_wait": BOOL,
        "idle_heartbeat": DURATION,
        "group": STRING,
        "min_pending": INT64,
        "min_ack_pending": INT64,
        "id": STRING,
        "priority": INT,
    },
    root="",
)
# What is plain has one meaning only: known fields of the right types, none of them null.
_decode_plain = msgspec.json.Decoder(_PullBody).decode
_NUMBER = re.compile(rb"[+-]?[0-9]{1,19}")
_SHORT = 512


class PullRequest:
    """One waiting client. Times are monotonic seconds, 0 where there is none."""

    __slots__ = (
        "batch", "bytes_left", "expires_at", "group", "heartbeat", "heartbeat_at", "limited",
        "min_ack_pending", "min_pending", "no_wait", "pin", "priority", "reply", "served",
    )  # fmt: skip

    def __init__(self, reply: bytes, body: _PullBody, now: float) -> None:
        self.reply = reply
        self.batch = max(body.batch, 1)
        self.limited = body.max_bytes > 0
        self.bytes_left = body.max_bytes
        self.no_wait = body.no_wait
        # Less than a microsecond has passed before anybody looks.
        expires = -1 if 0 < body.expires < 1000 else body.expires
        self.expires_at = now + expires / 1e9 if expires else 0.0
        self.heartbeat = max(body.idle_heartbeat, 0) / 1e9
        self.heartbeat_at = now + self.heartbeat if self.heartbeat else 0.0
        self.group = body.group
        self.min_pending = body.min_pending
        self.min_ack_pending = body.min_ack_pending
        self.pin = body.id
        self.priority = body.priority
        self.served = 0

    @property
    def next_deadline(self) -> float:
        """Return when this request wants attention, infinity when never."""
        return min(
            self.expires_at or float("inf"),
            self.heartbeat_at or float("inf"),
        )

    @property
    def has_enough(self) -> bool:
        """Whether it does not want to wait for more than it got."""
        return self.no_wait and (not self.expires_at or self.served > 0)

    def take(self, size: int) -> bool:
        """Have one message more, of so many bytes; False when they are more than it has left."""
        if self.limited:
            if size > self.bytes_left:
                return False
            self.bytes_left -= size
            if not self.bytes_left:
                self.batch = 1  # nothing more fits
        self.served += 1
        self.batch -= 1
        return True

    def helps_with(self, pending: int, unanswered: int) -> int:
        """Return how many messages it may have until too little is left for it to help.

        Each message that it gets leaves one less pending, and one more unanswered.
        """
        if not self.min_pending and not self.min_ack_pending:
            return self.batch
        if 0 < self.min_ack_pending <= unanswered:
            return self.batch
        if 0 < self.min_pending <= pending:
            return min(self.batch, pending - self.min_pending + 1)
        return 0

    def note_activity(self, now: float) -> None:
        """A delivery is as good as a heartbeat."""
        if self.heartbeat:
            self.heartbeat_at = now + self.heartbeat


def parse(reply: bytes, body: bytes, config: ConsumerConfig, now: float) -> PullRequest:
    """Read a request; raises BadPull with the status that it deserves."""
    asked = _decode(body)
    if asked.idle_heartbeat > 0 and 2 * asked.idle_heartbeat > asked.expires:
        raise BadPull(400, "Bad Request - heartbeat value too large")
    if config.max_batch and asked.batch > config.max_batch:
        raise BadPull(409, f"Exceeded MaxRequestBatch of {config.max_batch}")
    if config.max_expires and asked.expires > config.max_expires:
        raise BadPull(409, f"Exceeded MaxRequestExpires of {go_text(config.max_expires)}")
    if config.max_bytes and asked.max_bytes > config.max_bytes:
        raise BadPull(409, f"Exceeded MaxRequestMaxBytes of {config.max_bytes}")
    if body.strip().startswith(b"{"):  # a bare number cannot name a group, and need not
        _check_group(asked, config)
    return PullRequest(reply, asked, now)


def _check_group(asked: _PullBody, config: ConsumerConfig) -> None:
    policy = config.priority_policy
    if (asked.min_pending or asked.min_ack_pending) and policy != "overflow":
        raise BadPull(400, "Bad Request - Not a Overflow Priority consumer")
    if asked.id and policy != "pinned_client":
        raise BadPull(400, "Bad Request - Not a Pinned Client Priority consumer")
    if not 0 <= asked.priority <= 9:
        raise BadPull(400, "Bad Request - Priority must be between 0 and 9")
    if not policy:
        return
    if not asked.group:
        raise BadPull(400, "Bad Request - Priority Group missing")
    if asked.group not in config.priority_groups:
        raise BadPull(400, "Bad Request - Invalid Priority Group")


def _decode(body: bytes) -> _PullBody:
    text = body.strip()
    if text.startswith(b"{"):
        try:
            return _decode_plain(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _decode_known(text) if len(text) <= _SHORT else _decode_oddly(text)
    # The reference takes what it cannot read for one message.
    number = int(text) if _NUMBER.fullmatch(text) else 1
    return _PullBody(batch=number if number in INT.allowed else 1)


def _decode_oddly(text: bytes) -> _PullBody:
    try:
        return msgspec.convert(unmarshal(text, PULL), _PullBody)
    except GoJsonError as error:
        raise BadPull(400, f"Bad Request - {error}") from error


# A client that says null says the same with every request.
_decode_known = lru_cache(maxsize=256)(_decode_oddly)


class Ended(NamedTuple):
    """A request that is answered by a status once ``after`` messages of the parcel went."""

    after: int
    request: PullRequest
    status: str


class Shares(NamedTuple):
    """Where each message of a parcel goes, and which requests get some or have left the line."""

    routes: list[bytes]
    served: set[PullRequest]
    ended: list[Ended]

    @property
    def is_refused(self) -> bool:
        """Whether the message behind the last that somebody takes was too large for all."""
        ended = self.ended
        return bool(ended) and ended[-1][::2] == (len(self.routes), TOO_LARGE)


class WaitingLine:
    """Requests in the order in which they are served: first come, one message each, again.

    With ``prioritized`` the lowest priority number goes first, and its equals in turns.
    """

    def __init__(self, *, prioritized: bool = False) -> None:
        self._line: deque[PullRequest] = deque()
        self._prioritized = prioritized

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[PullRequest]:
        return iter(tuple(self._line))

    def add(self, request: PullRequest) -> None:
        """Stand at the end, or behind those of the same priority."""
        self._line.append(request)
        if self._prioritized:
            self._line = deque(sorted(self._line, key=lambda waiting: waiting.priority))

    def share(self, sizes: Sequence[int], only: PullRequest | None = None) -> Shares:
        """Share messages out in turns, one each and again; whoever has enough leaves the line.

        With ``only`` they are for this one alone, wherever it stands.
        """
        shares = Shares([], set(), [])
        turn = only or self._first
        while turn is not None and len(shares.routes) < len(sizes):
            self._take_turn(turn, sizes[len(shares.routes)], shares)
            turn = self._first if only is None else (only if only in self._line else None)
        return shares

    @property
    def _first(self) -> PullRequest | None:
        return self._line[0] if self._line else None

    def _take_turn(self, request: PullRequest, size: int, shares: Shares) -> None:
        if not request.take(size):
            self.remove(request)
            shares.ended.append(Ended(len(shares.routes), request, TOO_LARGE))
            return
        shares.routes.append(request.reply)
        shares.served.add(request)
        if request.batch > 0:
            self.requeue(request)
            return
        self.remove(request)
        if request.bytes_left > 0:  # it may have hoped for more
            shares.ended.append(Ended(len(shares.routes), request, COMPLETED))

    def is_even(self, count: int) -> bool:
        """Whether sizes do not matter to those who come first, and all are served alike."""
        first = islice(self._line, count)
        return not self._prioritized and not any(request.limited for request in first)

    def share_evenly(self, count: int) -> Shares:
        """Share messages out as ``share`` does, many rounds at once, where the line ``is_even``."""
        shares = Shares([], set(), [])
        while self._line and (left := count - len(shares.routes)):
            turn = list(islice(self._line, left))
            rounds = max(min(left // len(self._line), *(each.batch for each in turn)), 1)
            shares.routes.extend([request.reply for request in turn] * rounds)
            shares.served.update(turn)
            for request in turn:
                request.served += rounds
                request.batch -= rounds
                self._line.popleft()
                if request.batch > 0:
                    self._line.append(request)
        return shares

    def give(self, request: PullRequest, count: int) -> Shares:
        """Let who is alone in line and takes any size have all, which is no more than it wants."""
        request.served += count
        request.batch -= count
        if not request.batch:
            self._line.clear()
        return Shares([request.reply] * count, {request}, [])

    def requeue(self, request: PullRequest) -> None:
        """Go from wherever it stands to where a new one would stand."""
        if self._line[0] is request and not self._prioritized:
            self._line.rotate(-1)
        else:
            self._line.remove(request)
            self.add(request)

    def remove(self, request: PullRequest) -> None:
        """Leave the line, from wherever it stands."""
        self._line.remove(request)

    def wanted(self) -> int:
        """Return how many messages the line still wants in all."""
        return sum(request.batch for request in self._line)

    def wanted_bytes(self, most: int) -> int:
        """Return how many bytes the line still takes, ``most`` when there is no such limit."""
        if not all(request.limited for request in self._line):
            return most
        return min(sum(request.bytes_left for request in self._line), most)

    def next_deadline(self) -> float:
        """Return when a request wants attention, infinity when never."""
        return min((request.next_deadline for request in self._line), default=float("inf"))

    def clear(self) -> list[PullRequest]:
        """Send everybody away; returns who they were."""
        gone = list(self._line)
        self._line.clear()
        return gone
