"""Intake: one origin that a stream follows page by page, as long as both exist."""

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from millstream.clock import Clock
from millstream.delivery.timers import Timer, Timers
from millstream.errors import MillstreamError, NotHere, RecordTooLarge, StreamNotFound
from millstream.streams.config.source import Source
from millstream.streams.sourcing.adoption import Adoption
from millstream.streams.sourcing.incoming import Incoming
from millstream.streams.sourcing.last_heard import LastHeard
from millstream.streams.sourcing.origin import Origin, OriginStart, Stored
from millstream.streams.sourcing.origins import Origins

if TYPE_CHECKING:
    from millstream.streams.stream import Stream

log = logging.getLogger(__name__)

PAGE_RECORDS = 256
RETRY_AFTER = 1.0


class Intake:
    """Brings the records of ``source`` into ``target``; what differs is how they are stored."""

    def __init__(
        self, target: "Stream", source: Source, origins: Origins, clock: Clock, timers: Timers
    ) -> None:
        self.source = source
        self._target = target
        self._origins = origins
        self._heard = LastHeard(clock)
        self._timers = timers
        self._transforms = source.transforms()
        self._origin: Origin | None = None
        self._timer: Timer | None = None
        self._position = 1
        self._taken = 0  # the origin's newest sequence here, where sequences differ
        self._careful_until = 0
        self._is_busy = False
        self._is_stopped = False

    # -- what a kind of intake decides -------------------------------------------------------

    def _start(self) -> OriginStart:
        """Return where to go on in the origin."""
        raise NotImplementedError

    def _packed(self, records: Iterable[Stored], origin: Origin) -> Incoming:
        """Return a page as the target is to store it."""
        raise NotImplementedError

    def _stored(self, origin: Origin, last: int) -> None:
        """Take note that everything up to the origin's ``last`` is in the target."""

    # -- life --------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Follow the origin: it may have come, gone or been created anew."""
        if self._is_stopped or not self._origins.changed():
            return
        self._let_go()
        self._origin = origin = self._origins.open()
        if origin is not None:
            origin.begin(self._start(), self)

    def begun(self, seq: int, *, is_same: bool) -> None:
        """Go on at a sequence of the origin, which may be another stream than it was."""
        self._position = seq
        if not is_same:
            self._taken = 0
        self.heard()

    def heard(self) -> None:
        """Note that the origin is alive; one in this server is as long as it is followed."""
        if self._origin is None or self._origin.is_near:
            self._heard.note()
        else:
            self._heard.note_once()

    def stop(self) -> None:
        """Take nothing in any more."""
        self._is_stopped = True
        self._let_go()

    def _let_go(self) -> None:
        origin, self._origin = self._origin, None
        if self._timer is not None:
            self._timer.cancel()
        if origin is not None:
            self._heard.end()
            origin.leave()

    # -- taking in ---------------------------------------------------------------------------

    def pump(self) -> None:
        """Take in what there is, a page at a time."""
        origin = self._origin
        if self._is_busy or origin is None or self._is_stopped:
            return
        # A page is taken in whole: what a limit may turn away goes record by record.
        one_by_one = self._target.config.discard == "new" or self._position <= self._careful_until
        most = 1 if one_by_one else PAGE_RECORDS
        try:
            records = origin.page(self._position, most)
        except NotHere as missing:
            self._is_busy = True
            missing.wait(partial(self._on_taken_in, origin, []))
            return
        if not records:
            return
        self._is_busy = True
        seqs = [record[0] for record in records]
        coming = self._packed(records, origin)
        Adoption(self._target).take_in(coming, partial(self._on_taken_in, origin, seqs))

    def _rewritten(self, subject: bytes) -> bytes:
        text = subject.decode("utf-8", "surrogateescape")
        for transform in self._transforms:
            if transform.matches(text):
                return transform.apply(text).encode("utf-8", "surrogateescape")
        return subject

    def _on_taken_in(self, origin: Origin, seqs: list[int], error: MillstreamError | None) -> None:
        self._is_busy = False
        if self._is_stopped or origin is not self._origin:
            return
        if isinstance(error, RecordTooLarge):
            self._careful_until = max(self._careful_until, seqs[-1])
            if len(seqs) > 1:
                self._timer = self._timers.after(0.0, self.pump)
                return
            log.warning(
                "record too large for its target, left out stream=%s source=%s seq=%d",
                self._target.name, self.source.name, seqs[0],
            )  # fmt: skip
        elif error is not None:
            log.info("source waits stream=%s error=%s", self._target.name, error)
            self._timer = self._timers.after(RETRY_AFTER, self.pump)
            return
        elif not seqs:  # what was in cold history is here
            self.pump()
            return
        self._position = seqs[-1] + 1
        if origin.is_near:
            self._heard.note()
        self._stored(origin, seqs[-1])
        origin.taken(seqs)
        self._timer = self._timers.after(0.0, self.pump)  # not at once: the stack stays flat

    # -- looks -------------------------------------------------------------------------------

    @property
    def taken(self) -> int:
        """The origin's newest sequence that is here."""
        return self._position - 1 if self._origin is not None else self._taken

    @property
    def draws(self) -> bool:
        """Whether it follows a stream of this server by itself, through no consumer."""
        return self._origin is not None and self._origin.is_near and self.source.consumer is None

    def info(self) -> dict[str, Any]:
        """Return the origin as StreamInfo shows it."""
        source = self.source
        shown: dict[str, Any] = {"name": source.name}
        if source.external is not None:
            shown["external"] = source.external.shown()
        shown["lag"] = self._origin.left(self._position) if self._origin is not None else 0
        if self._taken:
            shown["seq"] = self._taken
        shown["active"] = self._heard.ago_ns()
        if self._origin is None and source.external is None:
            missing = StreamNotFound(source.name, None)
            shown["error"] = {
                "code": missing.status,
                "err_code": missing.err_code,
                "description": "stream not found",
            }
        if self._origin is not None and self._origin.error is not None:
            shown["error"] = self._origin.error
        if source.filter_subject:
            shown["filter_subject"] = source.filter_subject
        if source.subject_transforms:
            shown["subject_transforms"] = [
                {"src": rewrite.src, "dest": rewrite.dest} for rewrite in source.subject_transforms
            ]
        return shown
