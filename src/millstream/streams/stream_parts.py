"""StreamParts: what a stream needs while it is used, made when somebody needs it.

Of a hundred thousand streams most are idle. Such a one sleeps: its configuration and its log say
all that its parts would know.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.store.log.log import Durability, Log
from millstream.streams.account_quota import AccountRoom
from millstream.streams.config.config import StreamConfig
from millstream.streams.publishing.admission import Admission
from millstream.streams.publishing.scheduling import Scheduling
from millstream.streams.reading.contents import Contents
from millstream.streams.reading.subject_index import SubjectIndex
from millstream.streams.reading.watchers import Watchers
from millstream.streams.recall import Recall
from millstream.streams.retention.claims import Claims
from millstream.streams.retention.departures import Departures
from millstream.streams.retention.removal import Removal
from millstream.streams.writing.batch_limits import BatchLimits
from millstream.streams.writing.run import Run
from millstream.streams.writing.writes import Writes

if TYPE_CHECKING:
    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest
    from millstream.streams.stream import Stream


class Surroundings(msgspec.Struct, frozen=True):
    """What streams of one account that store alike need of the server.

    Acks name ``domain``; ``on_abandoned`` hears why each atomic batch is given up.
    """

    clock: Clock
    timers: Timers
    hub: "Hub | None"
    interest: "Interest | None"
    batch_limits: BatchLimits
    room: AccountRoom
    server_is_full: Callable[[str], bool] | None  # for the stream of this name
    on_abandoned: "Callable[[Stream, bytes, str], None]"
    domain: str


def may_sleep(config: StreamConfig, log: Log) -> bool:
    """Say whether nothing happens to such a stream by itself."""
    limited = config.max_msgs > 0 or config.max_bytes > 0 or config.max_msgs_per_subject > 0
    timed = config.max_age > 0 or config.allow_msg_ttl or config.allow_msg_schedules
    fed = config.mirror is not None or bool(config.sources)
    lasting = config.retention == "limits" and log.durability is not Durability.EPHEMERAL
    return lasting and not limited and not timed and not fed and config.republish is None


class StreamParts:
    """The parts of one stream that is awake."""

    __slots__ = (
        "_scheduling",
        "admission",
        "contents",
        "index",
        "is_used",
        "removal",
        "watchers",
        "writes",
    )

    def __init__(
        self,
        config: StreamConfig,
        log: Log,
        around: Surroundings,
        paused: Callable[[bool], None],
        on_abandoned: Callable[[bytes, str], None],
    ) -> None:
        clock, timers = around.clock, around.timers
        self.is_used = True
        claims = Claims()
        self.watchers = Watchers()
        self.index = SubjectIndex(log)
        departures = Departures(log, self.index, claims, timers, self.watchers.wake)
        self.contents = Contents(config, log, self.index, departures.count)
        self.writes = Writes(
            config, log, self.index, clock, around.hub, around.interest,
            committed=self._on_commit, paused=paused, keeps=self.keeps, domain=around.domain,
        )  # fmt: skip
        is_full = around.server_is_full
        self.admission = Admission(
            self.contents, self.keeps, self.writes, clock, timers, around.batch_limits,
            around.room, partial(is_full, config.name) if is_full is not None else None,
            on_abandoned,
        )  # fmt: skip
        self.removal = Removal(self.contents, departures, claims, self.writes, clock, timers)
        self._scheduling = Scheduling(
            self.contents, self.removal, self.admission, self.writes, clock, timers
        )

    def begin(self) -> None:
        """Recover what the records say, and keep the limits."""
        contents, expiry = self.contents, self.removal.ageing.expiry
        recall = Recall(contents.config, contents.log, self.writes, expiry, self._scheduling)
        recall.everything(self.writes.now_ns())
        self.removal.limits.keep(None)
        self._scheduling.start()

    def keeps(self, subject: bytes) -> bool:
        """Whether records of a subject are kept at all: somebody may have to wait for them."""
        retention = self.contents.config.retention
        return retention != "interest" or self.removal.claims.concern(subject)

    def _on_commit(self, run: Run) -> None:
        self.removal.limits.keep(run)
        if self.contents.config.allow_msg_schedules:
            self._scheduling.on_commit(run)
        if self.watchers.are_filtered:
            self.watchers.wake_for(run.batch.subjects(run.start, run.count))
        else:
            self.watchers.wake()

    def are_idle(self) -> bool:
        """Say whether others, made later, would know all that these know."""
        return (
            self.writes.is_idle
            and self.admission.is_idle
            and self.removal.is_idle
            and not self.watchers.are_there
        )

    def close(self) -> None:
        """Forget every deadline; staged writes still answer."""
        self.admission.close()
        self.removal.close()
        self._scheduling.close()
        self.watchers.wake()
