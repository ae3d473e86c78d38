"""RepublishedCopies: publishes the committed records of a stream under another subject."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.store.log.log import Log
from millstream.streams.writing.republish import Republish
from millstream.streams.writing.run import Run

if TYPE_CHECKING:
    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest

_READ_BYTES = 1024 * 1024


class RepublishedCopies:
    """Sends what ``republish`` decides; None means that the stream asks for no copies.

    ``keeps`` says of which subjects records stay: others go out no second time. ``last_of`` knows
    the newest sequence of a subject, staged ones included.
    """

    def __init__(
        self,
        log: Log,
        hub: "Hub | None",
        interest: "Interest | None",
        keeps: Callable[[bytes], bool],
        last_of: Callable[[bytes], int],
    ) -> None:
        self.republish: Republish | None = None
        self._log = log
        self._hub = hub
        self._interest = interest
        self._keeps = keeps
        self._last_of = last_of

    def note_previous(self, run: Run, republish: Republish) -> None:
        """Remember the newest record before a run, of each subject that goes out again."""
        for at in range(run.start, run.start + run.count):
            subject = run.batch.message(at)[0]
            if subject in run.previous or not republish.wants(subject):
                continue
            if self._keeps(subject):
                run.previous[subject] = self._last_of(subject)

    def publish(self, run: Run, republish: Republish) -> None:
        """Publish the committed records of a run under the subjects that republish names."""
        at, last = run.first_seq, run.last_seq
        while at <= last and run.previous and self._hub is not None and self._interest is not None:
            frames = self._log.read(at, last - at + 1, _READ_BYTES)
            if not len(frames):
                break
            for seq, ts_ns, subject, payload, headers, *_ in frames:
                if seq > last or subject not in run.previous:
                    continue
                previous, run.previous[subject] = run.previous[subject], seq
                copy = republish.copy(seq, ts_ns, subject, payload, headers, previous)
                if copy is not None:
                    self._hub.publish(self._interest, copy.subject, b"", copy.headers, copy.payload)
            at = frames.last_seq + 1
        if self._hub is not None:
            self._hub.flush()
