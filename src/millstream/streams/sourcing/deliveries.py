"""Deliveries: what a consumer of the origin brings to a mirror or source that names it.

Somebody made the consumer before. It is asked to begin behind what it has acks for, as any client
could ask; what it then delivers is kept in line until the target has stored it, and its requests
for flow control, which are its acks, are answered behind the records that they follow.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.delivery.timers import Timer, Timers
from millstream.errors import MillstreamError
from millstream.streams.sourcing.delivery_line import DeliveredRecord, DeliveryLine

if TYPE_CHECKING:
    from millstream.kernel._batch import Batch
    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest

ASK_AFTER = 0.1  # the consumer may be about to come, at a start
ASK_AGAIN_AFTER = 2.0
SILENCE = 10.0  # heartbeats come every second


class _Sink:
    def __init__(self, deliver: "Callable[[Batch], None]") -> None:
        self.deliver = deliver


class Deliveries:
    """Follows one consumer of the origin, from ``follow`` to ``stop``."""

    def __init__(
        self,
        hub: "Hub",
        interests: "Mapping[str, Interest]",
        timers: Timers,
        wire: dict[str, Any],
        not_flow: MillstreamError,
    ) -> None:
        self.error: dict[str, Any] | None = None
        self._hub = hub
        self._interests = interests
        self._timers = timers
        self._name = wire["name"]
        self._subject = wire["deliver_subject"].encode()
        self._not_flow = not_flow
        self._interest: Interest | None = None
        self._stream = ""
        self._on_records: Callable[[], None] = _nobody
        self._line = DeliveryLine(wire["name"])
        self._handles: list[int] = []
        self._timer: Timer | None = None

    @property
    def lag(self) -> int:
        """Return how many records the consumer has left to deliver."""
        return self._line.lag

    # -- life --------------------------------------------------------------------------------

    def follow(
        self, account: str, stream: str, position: int, on_records: Callable[[], None]
    ) -> None:
        """Have everything from ``position`` on delivered by the consumer of this stream.

        ``on_records`` is called when there are records to take.
        """
        self.stop()
        self._interest, self._stream = self._interests[account], stream
        self._on_records = on_records
        self._line.begin_at(position)
        self._later(ASK_AFTER)

    def stop(self) -> None:
        """Let go of the consumer, and of what was not taken yet."""
        self._let_go()
        self._interest = None
        self._line.clear()

    def _let_go(self) -> None:
        for handle in self._handles:
            if self._interest is not None:
                self._interest.remove_sink(handle)
        self._handles = []
        if self._timer is not None:
            self._timer.cancel()

    def _later(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.after(seconds, self._ask)

    def _ask(self) -> None:
        """Ask the consumer to begin behind what it has acks for."""
        self._let_go()
        if self._interest is None:
            return
        reply = f"_INBOX.{secrets.token_hex(11)}".encode()
        self._handles = [self._interest.add_sink(reply, _Sink(self._answered))]
        self._later(ASK_AGAIN_AFTER)
        subject = f"$JS.API.CONSUMER.RESET.{self._stream}.{self._name}".encode()
        self._hub.publish(self._interest, subject, reply, b"", b"")
        self._hub.flush()

    def _answered(self, batch: "Batch") -> None:
        answer = msgspec.json.decode(batch.message(0)[3])
        self.error = answer.get("error")
        if self.error is None and answer["config"].get("ack_policy") != "flow_control":
            self.error = {
                "code": self._not_flow.status,
                "err_code": self._not_flow.err_code,
                "description": str(self._not_flow),
            }
        if self.error is not None or self._interest is None:
            return  # asked again after a while
        self._line.begin_again()
        self._handles.append(self._interest.add_sink(self._subject, _Sink(self._deliver)))
        self._later(SILENCE)

    # -- what comes --------------------------------------------------------------------------

    def _deliver(self, batch: "Batch") -> None:
        for at in range(len(batch)):
            subject, reply, headers, payload, _ = batch.message(at)
            if headers.startswith(b"NATS/1.0 100"):
                in_order = self._line.add_control(reply, headers)
            else:
                in_order = self._line.add_record(subject, reply, headers, payload)
            if not in_order:
                self._later(ASK_AGAIN_AFTER)
                return
        self._later(SILENCE)
        self._answer_flow()
        self._on_records()

    def page(self, most: int) -> list[DeliveredRecord]:
        """Return the next records, as frames would give them; they stay in line."""
        return self._line.page(most)

    def taken(self, last: int) -> None:
        """Let records up to ``last`` leave the line: the target has them."""
        self._line.take(last)
        self._answer_flow()

    def _answer_flow(self) -> None:
        """Answer requests for flow control that no record stands before: these are the acks."""
        while self._interest is not None and (flow := self._line.next_flow()) is not None:
            told = b"NATS/1.0\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n"
            headers = told % (flow.consumer_seq, flow.stream_seq)
            self._hub.publish(self._interest, flow.reply, b"", headers, b"")
            self._hub.flush()


def _nobody() -> None:
    """Nobody follows yet."""
