"""Consumer: a position in a stream, a ledger of deliveries, and whom to deliver to."""

from functools import partial
from typing import TYPE_CHECKING, Protocol

from millstream.clock import Clock
from millstream.consumers.advisories import Advisories
from millstream.consumers.answers import Answers
from millstream.consumers.config import ConsumerConfig
from millstream.consumers.dispatch import Dispatch
from millstream.consumers.idleness import Idleness
from millstream.consumers.ledger import Ledger
from millstream.consumers.letters.letter_box import LetterBox, Letters
from millstream.consumers.outlet import Outlet
from millstream.consumers.pull.desk import PullDesk
from millstream.consumers.pump import ConsumerPump
from millstream.consumers.push import PushDesk
from millstream.consumers.reading import deliver_policy
from millstream.consumers.reading.claim import ConsumerClaim
from millstream.consumers.reading.cursor import Cursor
from millstream.consumers.reading.feed import Feed
from millstream.consumers.reading.pace import Pace
from millstream.consumers.reading.pause import Pause
from millstream.consumers.sinks import ConsumerSinks
from millstream.consumers.state import StateWriter
from millstream.delivery.timers import Timers
from millstream.streams.catalog import CatalogStore
from millstream.streams.stream import Stream

if TYPE_CHECKING:
    from millstream.kernel._interest import Interest


class Home(Protocol):
    """What a consumer asks of whoever keeps it."""

    def abandon(self, consumer: "Consumer") -> None:
        """Delete a consumer that nobody has used for its inactive threshold."""
        ...


class Consumer:
    """Delivers the records of one stream; what it is made of does the work."""

    def __init__(
        self,
        name: str,
        config: ConsumerConfig,
        stream: Stream,
        home: Home,
        *,
        created_ns: int,
        clock: Clock,
        timers: Timers,
        store: CatalogStore,
        outlet: Outlet,
        interest: "Interest",
        letters: Letters | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self.stream = stream
        self.created_ns = created_ns
        self.cursor = cursor = Cursor(stream, config.filters)
        self.ledger = ledger = Ledger(config.redelivery)
        self.advisories = Advisories(stream.name, name, outlet)
        self.pause = Pause(config.pause_until, clock, timers, self.advisories)
        pace = Pace(config)
        box = LetterBox(
            *(name, config, stream, ledger, timers),
            *(self.advisories, letters, self._settled_by_letter),
        )
        self.feed = Feed(
            *(name, config, stream, cursor, ledger, pace),
            *(self.pause, box, clock),
        )
        dispatch = Dispatch(
            name, config, stream, cursor, ledger, pace, outlet, self.advisories, clock
        )
        self.desk = _desk(config, self.feed, dispatch, outlet, clock, self.advisories)
        self.state = StateWriter(
            *(name, created_ns, stream.incarnation, ledger, cursor, store, timers),
            is_persisted=config.is_persisted,
        )
        self._claim = ConsumerClaim(name, stream, cursor, ledger)
        idleness = Idleness(
            timers,
            clock,
            self.desk.has_clients,
            partial(home.abandon, self),
            ledger.last_wait if not config.is_push else lambda: 0.0,
        )
        self.pump = ConsumerPump(
            config, self.feed, self.desk, outlet, self.state, self._claim, idleness, clock, timers
        )
        api = f"{stream.name}.{name}"
        prefix = len(f"$JS.ACK.{api}.".encode())
        self.answers = Answers(
            config, ledger, clock, self.pump, self._claim, prefix, self.advisories, box
        )
        self._sinks = ConsumerSinks(api, self.pump, self.answers, interest)

    @property
    def pulls(self) -> PullDesk | None:
        """Return the desk where clients ask, None where messages go to a fixed subject."""
        return self.desk if isinstance(self.desk, PullDesk) else None

    # -- life --------------------------------------------------------------------------------

    def place(self) -> None:
        """Stand where the deliver policy says; for a consumer without a past."""
        deliver_policy.place(self.cursor, self.config, self.stream)
        self.ledger.delivered = self.ledger.floor = (0, self.cursor.position - 1)

    def claim(self) -> None:
        """Tell the stream what this consumer still needs, where retention depends on that."""
        self._claim.renew(self.config.filters)

    def open(self) -> None:
        """Take answers and requests from now on."""
        if self.feed.gate is not None:
            self.feed.gate.recall()
        self._sinks.open(self.config)
        self.pause.watch()
        self.pump.wake_at(self.ledger.pending.next_deadline())
        self.pump.idleness.watch(self.config.inactive_threshold / 1e9)
        if self.config.is_push:  # nobody has pulled yet; who made it hears of that first
            self.pump.wake_soon()

    def close(self, description: str = "Consumer Deleted") -> None:
        """Send everybody away and let go of the stream."""
        self.state.stop()
        self.answers.close()
        self._sinks.close()
        self.pause.stop()
        self.pump.close(description)

    def reconfigure(self, config: ConsumerConfig) -> None:
        """Change a serving consumer's configuration."""
        is_pause_changed = config.pause_until != self.config.pause_until
        self.take_on(config)
        self.claim()
        self.stream.removal.drop_unclaimed()
        self._sinks.listen(config)
        if is_pause_changed:
            self.pause.report()
            self.pause.watch()
        self.pump.idleness.watch(config.inactive_threshold / 1e9)
        self.pump.wake_at(self.ledger.pending.next_deadline())
        # Who waits is not looked at in a pause, nor before the answer to who asked for this.
        self.pump.wake_soon(self.pause.left_ns / 1e9)

    def take_on(self, config: ConsumerConfig) -> None:
        """Adopt a checked configuration."""
        if config.filters != self.config.filters:
            self.cursor.refilter(config.filters)
        self.config = config
        self.pause.change(config.pause_until)
        self.pump.take_on(config)
        self.answers.take_on(config)

    def reset(self, seq: int) -> int:
        """Deliver anew from ``seq``, or from the ack floor when it is 0; returns where."""
        if seq == 0:
            seq = max(self.ledger.floor[1], self.pump.answered_to) + 1
        else:
            deliver_policy.check_reset(seq, self.config, self.stream)
        self.ledger.reset(seq)
        self.pump.answered_to = 0
        self.cursor.resume(seq, [])
        self.claim()
        self.state.write_soon()
        self.pump.wake_soon()  # who asked hears of it before anything is delivered
        return seq

    # -- removals ----------------------------------------------------------------------------

    def on_purge(self, start: int, *, wider: bool) -> None:
        """Stand behind a purge: nothing of this consumer's is left below ``start``.

        ``wider``: it also wants records that the purge left alone.
        """
        self.feed.purge(start, wider=wider)
        self.pump.wake_at(self.ledger.pending.next_deadline())
        self.state.write_soon()

    def on_drop(self, below: int, seqs: list[int]) -> None:
        """Nobody answers any more for what was removed: a pending delivery of it is over."""
        pending = self.ledger.pending
        lost = {*pending.up_to(max(below, 1) - 1), *(seq for seq in seqs if seq in pending)}
        for seq in sorted(lost):
            if seq in pending:
                self._claim.let_go(self.answers.drop(seq))
        self.forget(below, seqs)
        if lost:
            self.pump.on_removal()

    def _settled_by_letter(self, seq: int) -> None:
        """Take a record for answered: a letter is kept of it."""
        if self.ledger.ack(seq):
            self._claim.let_go([seq])
        self.pump.on_removal()

    def forget(self, below: int, seqs: list[int]) -> None:
        """Forget how often removed records were delivered that had been given up."""
        if self.ledger.forget(below, seqs):
            self.state.write_soon()


def _desk(
    config: ConsumerConfig,
    feed: Feed,
    dispatch: Dispatch,
    outlet: Outlet,
    clock: Clock,
    advisories: Advisories,
) -> PullDesk | PushDesk:
    """Return the desk that delivers as the configuration says."""
    if config.is_push:
        return PushDesk(config, feed, dispatch, outlet, clock)
    return PullDesk(config, feed, dispatch, outlet, clock, advisories)
