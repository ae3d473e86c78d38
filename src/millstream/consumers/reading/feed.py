"""Feed: what goes next, what was delivered already first."""

from typing import TYPE_CHECKING, NamedTuple

from millstream.clock import Clock
from millstream.consumers.ledger import FOREVER, LAST, GiveUp, Ledger
from millstream.consumers.reading.cursor import Cursor, CursorPage
from millstream.consumers.reading.key_gate import KeyGate
from millstream.consumers.reading.pace import Pace
from millstream.errors import MillstreamError, NotHere

if TYPE_CHECKING:
    from millstream.consumers.config import ConsumerConfig
    from millstream.consumers.letters.letter_box import LetterBox
    from millstream.consumers.reading.pause import Pause
    from millstream.streams.stream import Stream

PAGE_BYTES = 1024 * 1024
NO_LIMIT = 2**63
COLD_RETRY = 1.0  # seconds until cold history that could not be read is asked again


class FeedParcel(NamedTuple):
    """Records to deliver; ``again`` when it is not for the first time."""

    page: CursorPage
    again: bool

    def part(self, start: int, end: int) -> "FeedParcel":
        """Return the records from ``start`` to ``end``."""
        if (start, end) == (0, self.page.count):
            return self
        return FeedParcel(
            CursorPage(self.page.frames, self.page.start + start, end - start), self.again
        )


class Feed:
    """Takes records from cursor and ledger, in parcels that a desk may deliver now."""

    def __init__(
        self,
        name: str,
        config: "ConsumerConfig",
        stream: "Stream",
        cursor: Cursor,
        ledger: Ledger,
        pace: Pace,
        pause: "Pause",
        letters: "LetterBox",
        clock: Clock,
    ) -> None:
        self.stream = stream
        self.name = name
        self.cursor = cursor
        self.ledger = ledger
        self.is_blocked = False  # there is something, but it may not go now
        self.ready_at = FOREVER  # when to look again, where only time is missing
        self.missing: NotHere | None = None  # cold history that nobody waits for yet
        self._fetch_again_at = 0.0  # FOREVER: the next record is on its way from cold history
        self._pace = pace
        self._pause = pause
        self._letters = letters
        self._clock = clock
        self.gate: KeyGate | None = None  # where records of one key go one by one
        self.take_on(config)

    def take_on(self, config: "ConsumerConfig") -> None:
        """Adopt a configuration."""
        self._config = config
        self._pace.take_on(config)
        self.tracks = config.ack_policy != "none"
        rule, gate = config.record_key, self.gate
        if rule != (gate.rule if gate is not None else None):
            if gate is not None:
                gate.end()
            self.gate = None
            if rule is not None:
                self.gate = KeyGate(rule, self.stream, self.cursor, self.ledger)

    def available(self) -> int:
        """Return how many records wait to be delivered, again or for the first time."""
        return len(self.ledger.queue) + self.cursor.pending()

    @property
    def has_some(self) -> bool:
        """Whether there is a record that may go now."""
        return self.available() > 0 and not self.waits_for_acks

    def _room(self) -> int:
        """Return how many more may go before some are answered."""
        limit = self._config.max_ack_pending
        if not self.tracks or limit <= 0:
            return NO_LIMIT
        return limit - self.in_flight

    @property
    def in_flight(self) -> int:
        """Return how many deliveries are unanswered."""
        return len(self.ledger.pending) - len(self.ledger.lanes.waiting)

    @property
    def left(self) -> int:
        """Return how many records are still to be delivered for the first time."""
        return self.cursor.pending() + len(self.ledger.lanes.waiting)

    @property
    def waits_for_acks(self) -> bool:
        """Whether nothing may go before some deliveries are answered."""
        return self._room() <= 0 and not self.ledger.queue

    def next(self, most: int, max_bytes: int) -> FeedParcel | None:
        """Return what to deliver next, None when there is nothing or it may not go now."""
        self.is_blocked, self.ready_at = False, FOREVER
        if self.is_paused:
            return None
        if self._fetch_again_at > self._clock.monotonic():
            self.is_blocked, self.ready_at = True, self._fetch_again_at
            return None
        try:
            return self._next(most, max_bytes)
        except NotHere as missing:
            self.is_blocked, self.missing = True, missing
            return None

    def take_missing(self) -> NotHere | None:
        """Return what to wait for; until ``arrived`` is called nothing goes."""
        missing, self.missing = self.missing, None
        if missing is not None:
            self._fetch_again_at = FOREVER
        return missing

    def arrived(self, error: MillstreamError | None) -> None:
        """Go on with what came from cold history, or ask for it again later."""
        self._fetch_again_at = 0.0 if error is None else self._clock.monotonic() + COLD_RETRY

    def _next(self, most: int, max_bytes: int) -> FeedParcel | None:
        if self.gate is not None and not self.gate.learn():
            self.is_blocked, self.ready_at = True, self._clock.monotonic()
            return None
        while self.ledger.queue and (effect := self.ledger.next_again()) is not None:
            if isinstance(effect, GiveUp):
                self._letters.give_up(effect)
                continue
            seq = effect.seq
            try:
                frames = self.stream.read(seq, 1, PAGE_BYTES)
            except NotHere:
                self.ledger.queue.add(seq)
                raise
            if len(frames) and frames.first_seq == seq and self.stream.index.is_live(seq):
                return FeedParcel(CursorPage(frames, 0, 1), again=True)
            self.ledger.gone([seq])  # deleted meanwhile: nobody has to answer for it
        most = min(most, self._room())
        if most <= 0:
            self.is_blocked = True
            return None
        page = self._read(most if self._pace.is_free else 1, max_bytes)
        if page is None and self.is_blocked:
            return None
        if page is None:
            self._pace.caught_up()
            return None
        if not self._pace.is_free and self._is_early(page):
            return None
        return FeedParcel(page, again=False)

    def _read(self, most: int, max_bytes: int) -> CursorPage | None:
        if self.gate is None:
            return self.cursor.read(most, max_bytes)
        page, is_more = self.gate.read(most, max_bytes)
        if page is None and (is_more or self.gate.is_full):
            self.is_blocked = True
            self.ready_at = self._clock.monotonic() if is_more else FOREVER
        return page

    @property
    def is_paused(self) -> bool:
        """Whether deliveries are paused; ``ready_at`` says until when."""
        if not self._pause.until_ns:
            return False
        end_at = self._pause.end_at()
        if end_at:
            self.ready_at = end_at
        return end_at > 0

    def _is_early(self, page: CursorPage) -> bool:
        due = self._pace.due(page.frames.record(page.start)[1])
        if due <= self._clock.monotonic():
            return False
        self.is_blocked, self.ready_at = True, due
        return True

    # -- removals and waits ------------------------------------------------------------------

    def follow(self, *, closely: bool = False) -> None:
        """Notice removals: nobody has to answer for what is gone.

        Records deleted between others are noticed when they would be delivered again, or when
        asked to look ``closely``.
        """
        changed = self.cursor.follow()
        if changed:
            self.stream.removal.recent.tell_drops()
        if self.stream.removal.recent.purges:
            return  # what becomes of pending deliveries is decided when it is over
        if changed:
            first = self.stream.log.state().first_seq
            if self.ledger.gone(self.ledger.pending.up_to(first - 1)):
                self.ledger.last_acked_ns = self._clock.time_ns()
        if closely:
            self.ledger.gone(self._removed_pending())

    def _removed_pending(self) -> list[int]:
        """Return the pending deliveries of records that are gone."""
        pending = self.ledger.pending.up_to(LAST)
        return [seq for seq in pending if not self.stream.index.is_live(seq)]

    def purge(self, start: int, *, wider: bool) -> None:
        """Stand behind a purge: nothing of this consumer's is left below ``start``.

        ``wider``: it also wants records that the purge left alone.
        """
        self.cursor.follow()
        lost = self.ledger.pending.up_to(start - 1)
        if not wider:
            self.cursor.pass_to(start)
        else:
            lost = self._removed_pending()
        now, position = self._clock.monotonic(), max(start, self.cursor.seen_to + 1)
        acks_all = self._config.ack_policy == "all"
        if self.ledger.purged(lost, start, position, now, acks_all=acks_all):
            self.ledger.last_acked_ns = self._clock.time_ns()

    def expire(self, now: float) -> bool:
        """Let what was not answered in time go again, or report it; whether any was given up."""
        ended = self.ledger.expire(now)
        for each in ended:
            self._letters.give_up(each)
        return bool(ended)

    # -- parcels -----------------------------------------------------------------------------

    def put_back(self, parcel: FeedParcel) -> None:
        """Let a parcel that could not go be the next again."""
        first = parcel.page.frames.seq(parcel.page.start)
        if parcel.again:
            self.ledger.queue.add(first)
        else:
            self.cursor.pass_to(first)

    def look(self) -> None:
        """Go up to the next record, which nobody may have now, as the reference does."""
        if self.ledger.queue or self._room() <= 0:
            return
        try:
            page = self.cursor.read(1, 1)
        except NotHere:
            return  # who may have it will ask for it
        if page is not None:
            self.cursor.pass_to(page.frames.seq(page.start))
