"""Deliveries: what a consumer of an origin brings to a mirror or source, near or far.

The consumer is asked for over the origin's API, as any client could ask. What it then delivers is
kept in line until the target has stored it, and its requests for flow control are answered behind
the records that they follow. A delivery that is missing, or silence, has it asked for again from
the last record on, so that a break of whatever lies between costs nothing but time.
"""

import logging
import secrets
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.delivery.timers import Timer, Timers
from millstream.streams.sourcing.delivery_line import DeliveryLine
from millstream.streams.sourcing.origin import OriginFollower, OriginStart, Stored
from millstream.streams.sourcing.origin_api import OriginApi
from millstream.streams.sourcing.origin_consumers import (
    AskAgain,
    ConsumerRefusal,
    Opened,
    OriginConsumer,
)

if TYPE_CHECKING:
    from millstream.kernel._batch import Batch

log = logging.getLogger(__name__)

NOBODY_AFTER = 0.25  # nobody answers there now: a link may be about to come
GAP_AFTER = 0.05
LONGEST_WAIT = 5.0
ANSWER_WITHIN = 5.0
SILENCE = 2.5  # heartbeats come every second
LOOK_EVERY = 0.5
LARGEST_LINE = 64 << 20  # flow control keeps it far below
_NO_RESPONDERS = b"NATS/1.0 503"


class Deliveries:
    """Follows one consumer of an origin, from ``follow`` to ``stop``."""

    def __init__(self, api: OriginApi, timers: Timers, consumer: OriginConsumer) -> None:
        self.error: dict[str, Any] | None = None
        self.line = DeliveryLine()
        self.identity = ""
        self._api = api
        self._timers = timers
        self._consumer = consumer
        self._follower: OriginFollower | None = None
        self._start = OriginStart()
        self._is_other = False  # the origin is not the stream that it was
        self._timer: Timer | None = None
        self._opened: Opened | None = None
        self._heard_at = 0.0
        self._failures = 0

    # -- life --------------------------------------------------------------------------------

    def follow(self, start: OriginStart, follower: OriginFollower, after: float) -> None:
        """Have everything from a place on delivered; the first question waits so long."""
        self._follower = follower
        self._start = start
        self.line.last = start.seq - 1
        self._later(after, self._ask)

    def stop(self) -> None:
        """Let go of the consumer, and of what was not taken yet."""
        self._let_go()
        self._follower = None
        self.line.drop_unread()

    def _let_go(self) -> None:
        """Hear no more of the consumer, and have it removed."""
        self._api.hush()
        if self._timer is not None:
            self._timer.cancel()
        opened, self._opened = self._opened, None
        removal = self._consumer.removal(opened.name) if opened is not None else None
        if removal is not None:
            self._api.ask(removal.operation, b"", b"", b"")

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.after(seconds, call)

    # -- asking ------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Ask for a consumer behind the last record that came."""
        self._let_go()
        if self._follower is None:
            return
        request = self._consumer.request(self._start)
        reply = f"_INBOX.{secrets.token_hex(11)}".encode()
        self._api.listen(reply, partial(self._answered, self._start))
        if not self._api.ask(request.operation, reply, request.headers, request.body):
            self._nobody()
            return
        why = f"no answer from {self._api.prefix} within {ANSWER_WITHIN:g} s"
        self._later(ANSWER_WITHIN, partial(self._failed, 504, why))

    def _nobody(self) -> None:
        """Try again soon: nobody is there now, and asking costs nobody anything."""
        self.error = _problem(503, f"nobody answers at {self._api.prefix}: is the link to it up?")
        self._later(NOBODY_AFTER, self._ask)

    def _failed(self, code: int, why: str) -> None:
        self._refused(_problem(code, why))

    def _refused(self, error: dict[str, Any]) -> None:
        """Note why nothing comes, and ask again after a while."""
        if self.error is None or self.error["description"] != error["description"]:
            log.warning(
                "origin api=%s does not deliver: %s", self._api.prefix, error["description"]
            )
        self.error = error
        self._failures += 1
        self._later(min(0.25 * 2**self._failures, LONGEST_WAIT), self._ask)

    def _answered(self, start: OriginStart, batch: "Batch") -> None:
        _, _, headers, payload, _ = batch.message(0)
        if self._follower is None or self._opened is not None:
            return
        if headers.startswith(_NO_RESPONDERS):
            self._nobody()
            return
        try:
            answer = msgspec.json.decode(payload, type=dict[str, Any])
            opened = self._consumer.read(start, headers, answer)
        except AskAgain as again:
            self._is_other |= again.start.seq < start.seq
            self._start = again.start
            self.line.last = again.start.seq - 1
            self._later(0.0, self._ask)
        except ConsumerRefusal as refusal:
            self._refused(refusal.error)
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError):
            self._failed(502, f"the answer from {self._api.prefix} is no consumer")
        else:
            self._open(start, opened)

    def _open(self, start: OriginStart, opened: Opened) -> None:
        """Listen to a consumer that is there now."""
        assert self._follower is not None
        self.error = None
        if start.identity and opened.identity not in ("", start.identity):
            why = f"the origin was made anew, and {start.seq - 1} was taken of the one before"
            self.error = _problem(409, why)
        is_same, self._is_other = not self._is_other, False
        self._opened, self.identity = opened, opened.identity
        self.line.begin_again(opened.name, opened.pending)
        if self.line.is_empty:
            self._follower.begun(max(start.seq, opened.next_seq), is_same=is_same)
        self.line.last = max(self.line.last, opened.next_seq - 1)
        self._start = OriginStart(self.line.last + 1, identity=self.identity)
        self._note_heard()
        self._api.listen(opened.deliver.encode(), self._deliver)
        self._later(LOOK_EVERY, self._look)

    # -- what comes --------------------------------------------------------------------------

    def _note_heard(self) -> None:
        self._heard_at = self._timers.clock.monotonic()
        if self._follower is not None:
            self._follower.heard()

    def _look(self) -> None:
        """See that the consumer is alive: it says so every second."""
        if self._timers.clock.monotonic() - self._heard_at > SILENCE:
            self.error = _problem(
                504, f"nothing was heard from {self._api.prefix} for {SILENCE:g} s"
            )
            self._ask_from_here(0.0)
            return
        self._later(LOOK_EVERY, self._look)

    def _ask_from_here(self, after: float) -> None:
        self._start = OriginStart(self.line.last + 1, identity=self.identity)
        self.line.drop_unread()
        self._let_go()
        self._later(after, self._ask)

    def _deliver(self, batch: "Batch") -> None:
        self._note_heard()
        self.line.add(batch)
        if self.line.size > LARGEST_LINE:
            self._failures += 1
            self._ask_from_here(LONGEST_WAIT)
        elif self._follower is not None:
            self._follower.pump()

    def page(self, most: int) -> list[Stored]:
        """Return the next records; they stay in line."""
        records = self.line.page(most)
        while not records and (flow := self.line.next_flow()) is not None:
            told = b"NATS/1.0\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n"
            headers = told % (flow.consumer_seq, flow.stream_seq)
            self._api.send(flow.reply, b"", headers, b"")
            records = self.line.page(most)
        if self.line.is_broken and self._opened is not None:
            self._failures += 1
            self._ask_from_here(min(GAP_AFTER * 2**self._failures, LONGEST_WAIT))
        return records

    def taken(self, last: int) -> None:
        """Let records up to ``last`` leave the line: the target has them."""
        self._failures = 0
        self.line.take(last)


def _problem(code: int, why: str) -> dict[str, Any]:
    return {"code": code, "err_code": 10029, "description": why}
