"""LimitKeeper: what a stream drops because a commit put it above its limits, or asked for it."""

from millstream.clock import Clock
from millstream.streams.config.size import sizes
from millstream.streams.reading.contents import Contents
from millstream.streams.retention import rules
from millstream.streams.retention.claims import Claims
from millstream.streams.retention.departures import Departures, log_failure
from millstream.streams.retention.expiry import Expiry
from millstream.streams.retention.holds import Holds
from millstream.streams.writing.run import Run
from millstream.subjects.subject import has_wildcard

_MOST_HIDDEN = 4096  # records that are hidden until their removal is logged; more are trimmed


class LimitKeeper:
    """Keeps one stream within its limits; what somebody holds waits."""

    def __init__(
        self,
        contents: Contents,
        departures: Departures,
        claims: Claims,
        holds: Holds,
        expiry: Expiry,
        clock: Clock,
    ) -> None:
        self._contents = contents
        self._departures = departures
        self._claims = claims
        self._holds = holds
        self._expiry = expiry
        self._clock = clock

    def hold(self, holder: str, taken: int, seconds: float, reader: str = "") -> int:
        """Keep what is above ``taken`` from max_age, max_msgs and max_bytes for a time.

        Returns how far the last of the readers is that go by this name.
        """
        last = self._holds.put(holder, taken, seconds, self._clock.monotonic(), reader)
        self.keep(None)  # what was held until now may go
        return last

    def keep(self, run: Run | None) -> None:
        """Drop what is above the limits; ``run`` is what was committed, None means look at all."""
        config = self._contents.config
        if run is not None and run.demands:
            self._meet_demands(run)
        if run is not None and config.retention == "interest" and not config.sealed:
            subjects = (run.batch.message(run.start + at)[0] for at in range(run.count))
            seqs = [run.seq_of(at) for at in range(run.count)]
            self._departures.release(self._claims.unwanted(seqs, subjects))
        if config.max_msgs_per_subject > 0:
            touched = run.subjects() if run is not None else None
            self._departures.crowd_out(touched, config.max_msgs_per_subject)
        if config.max_msgs > 0 or config.max_bytes > 0:
            self._departures.log_gathered()
            over = rules.excess(config, self._contents.state())
            if over:
                self._trim(over)
        if config.max_age > 0:
            self._expiry.watch_age()

    def _trim(self, over: rules.Excess) -> None:
        """Remove what is over, but nothing that somebody holds."""
        first_kept = self._holds.unheld(self._first_kept(over), self._clock.monotonic())
        if first_kept > self._contents.log.state().first_seq:
            self._departures.trim_to(first_kept, "cap")

    def _first_kept(self, over: rules.Excess) -> int:
        """Walk from the old end until enough has been passed; the newest record always stays."""
        log = self._contents.log
        state = log.state()
        if over.bytes == 0 and state.count == state.last_seq - state.first_seq + 1:
            return state.first_seq + over.messages
        at, messages, size = state.first_seq, over.messages, over.bytes
        for seq, taken in sizes(self._contents.config, log, at):
            if messages <= 0 and size <= 0:
                return at
            at = seq + 1
            messages -= 1
            size -= taken
        return at

    def _meet_demands(self, run: Run) -> None:
        for demand in run.demands:
            seq = run.seq_of(demand.at)
            if demand.rollup:
                self._roll_up(run.batch.message(run.start + demand.at)[0], seq, demand.rollup)
            if demand.forever:
                self._expiry.never(seq)
            if demand.ttl:
                ts_ns = run.time_of(demand.at, self._clock.time_ns())
                self._expiry.later(seq, ts_ns, demand.ttl)

    def _roll_up(self, subject: bytes, seq: int, what: bytes) -> None:
        text, index = subject.decode("utf-8", "surrogateescape"), self._contents.index
        recent = self._departures.recent
        if what == b"all" and self._contents.log.state().count > _MOST_HIDDEN:
            self._departures.trim_to(seq, "delete")
            recent.roll_up("")
            return
        found = index.seqs(index.select(())) if what == b"all" else index.seqs_of(subject)
        if what == b"sub" and has_wildcard(text):
            found = index.seqs(index.select([text]))  # a pattern replaces all that it matches
        older = [one for one in found if one < seq]
        if older:
            recent.purge(older)
            self._departures.remove(older, log_failure)
        recent.roll_up("" if what == b"all" else text)
