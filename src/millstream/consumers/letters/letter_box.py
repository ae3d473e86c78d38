"""LetterBox: a consumer's records that are given up stay pending until a dead letter is kept."""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from millstream.errors import MillstreamError, NotHere, RecordNotFound
from millstream.message import Record

if TYPE_CHECKING:
    from millstream.consumers.advisories import Advisories
    from millstream.consumers.config import ConsumerConfig
    from millstream.consumers.ledger import GiveUp, Ledger
    from millstream.delivery.timers import Timer, Timers
    from millstream.streams.stream import Stream

log = logging.getLogger(__name__)

MAX_DELIVER, TERMINATED = "max_deliver", "terminated"  # why there is a letter
MOST_UNDER_WAY = 64
RETRY = 1.0  # seconds; each failure in a row doubles them
LONGEST_RETRY = 30.0


class Letter(msgspec.Struct, frozen=True):
    """A record that a consumer does not deliver any more, and why."""

    record: Record
    consumer: str
    deliveries: int
    reason: str


class Letters(Protocol):
    """Where letters are kept."""

    def keep(
        self, origin: "Stream", to: str, letter: Letter, done: Callable[[Exception | None], None]
    ) -> None:
        """Store a letter; ``done`` is called once it is as safe as its stream promises."""
        ...


class _Wanted(msgspec.Struct, frozen=True):
    deliveries: int
    reason: str
    then: Callable[[], None] | None


class LetterBox:
    """Takes sequences, sends their records, and says which are done; what fails is sent again."""

    def __init__(
        self,
        name: str,
        config: "ConsumerConfig",
        stream: "Stream",
        ledger: "Ledger",
        timers: "Timers",
        advisories: "Advisories",
        letters: Letters | None,
        settled: Callable[[int], None],
    ) -> None:
        self._name = name
        self._stream = stream
        self._ledger = ledger
        self._timers = timers
        self._advisories = advisories
        self._letters = letters
        self._settled = settled
        self._waiting: dict[int, _Wanted] = {}
        self._under_way: dict[int, _Wanted] = {}
        self._retry = RETRY
        self._timer: Timer | None = None
        self._is_closed = False
        self.take_on(config)

    def take_on(self, config: "ConsumerConfig") -> None:
        """Adopt a configuration."""
        self._to = config.dead_letter

    @property
    def is_open(self) -> bool:
        """Whether letters are kept at all."""
        return bool(self._to) and self._letters is not None

    def has(self, seq: int) -> bool:
        """Whether a letter of this record is on its way."""
        return seq in self._waiting or seq in self._under_way

    def give_up(self, end: "GiveUp") -> None:
        """Tell of a record that is not delivered any more; keep a letter where one is wanted."""
        if self.has(end.seq):
            return  # told already, and its letter is on its way
        self._advisories.max_deliveries(end)
        if self.is_open:
            self.post(end.seq, end.deliveries, MAX_DELIVER)

    def post(
        self, seq: int, deliveries: int, reason: str, then: Callable[[], None] | None = None
    ) -> None:
        """Have a letter kept; ``then`` is called when the record is settled by it."""
        if not self.has(seq):
            self._waiting[seq] = _Wanted(deliveries, reason, then)
            self._timer = self._timer or self._timers.after(0.0, self._send)

    def _send(self) -> None:
        self._timer = None
        while self._waiting and len(self._under_way) < MOST_UNDER_WAY and not self._is_closed:
            seq = next(iter(self._waiting))
            wanted = self._waiting.pop(seq)
            if seq not in self._ledger.pending:
                continue  # answered or removed meanwhile
            try:
                record = self._stream.get(seq)
            except RecordNotFound:
                self._settle(seq, wanted)
                continue
            except NotHere as missing:
                self._under_way[seq] = wanted
                missing.wait(partial(self._arrived, seq))
                continue
            self._under_way[seq] = wanted
            self._keep(seq, record, wanted)

    def _arrived(self, seq: int, error: MillstreamError | None) -> None:
        """Go on with a record that came from cold history."""
        self._waiting[seq] = self._under_way.pop(seq)
        self._again(0.0 if error is None else self._retry)

    def _keep(self, seq: int, record: Record, wanted: _Wanted) -> None:
        if self._letters is None or not self._to:  # the configuration changed just now
            self._kept(seq, None)
            return
        letter = Letter(record, self._name, wanted.deliveries, wanted.reason)
        self._letters.keep(self._stream, self._to, letter, partial(self._kept, seq))

    def _kept(self, seq: int, error: Exception | None) -> None:
        wanted = self._under_way.pop(seq)
        if self._is_closed:
            return
        if error is None:
            self._retry = RETRY
            self._settle(seq, wanted)
            self._again(0.0)
            return
        log.warning(
            "dead letter not kept stream=%s consumer=%s seq=%d to=%s error=%s",
            self._stream.name, self._name, seq, self._to, error,
        )  # fmt: skip
        self._waiting[seq] = wanted
        self._again(self._retry)
        self._retry = min(2 * self._retry, LONGEST_RETRY)

    def _again(self, delay: float) -> None:
        if self._waiting and self._timer is None and not self._is_closed:
            self._timer = self._timers.after(delay, self._send)

    def _settle(self, seq: int, wanted: _Wanted) -> None:
        self._settled(seq)
        if wanted.then is not None:
            wanted.then()

    def close(self) -> None:
        """Send nothing any more: what has no letter yet stays pending."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
