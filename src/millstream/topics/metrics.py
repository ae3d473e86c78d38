"""/v0/metrics: the topics in figures, as Prometheus text or as JSON."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.delivery.scheduler import Scheduler
from millstream.http.exposition import (
    CONTENT_TYPE,
    GAUGE,
    Family,
    Sample,
    counter,
    gauge,
    histogram,
    render,
)
from millstream.http.request import Caller, Request
from millstream.http.response import Response, json_response
from millstream.http.unread import UnreadBudget
from millstream.queues.queue import Counters
from millstream.queues.settings import is_queue
from millstream.store.log.log import Durability
from millstream.store.wal.meter import SYNC_BOUNDS_US, WalMeter, meter_of
from millstream.streams.config.data_size import data_bytes
from millstream.streams.state import StreamState
from millstream.topics.context import Topics
from millstream.topics.directory import may_see
from millstream.topics.limits.write_depth import WriteDepth
from millstream.topics.page.current_state import current_state

if TYPE_CHECKING:
    from millstream.streams.stream import Stream
    from millstream.topics.watch.watch import Watches

MOST_TOPICS = 1000
TURN = 100  # topics looked at before everybody else has had a turn


class TopicFigures(msgspec.Struct, frozen=True):
    """One topic at one moment."""

    name: str
    durability: str
    state: StreamState
    bytes: int
    queue: Counters | None = None


class TopicTotals:
    """What all topics add up to, and the figures of the first of them."""

    def __init__(self) -> None:
        self.count = self.records = self.bytes = self.queues = self.leased = 0
        self.first: list[TopicFigures] = []
        self.by_class = {kind.value: 0 for kind in Durability}

    def add(self, each: TopicFigures) -> None:
        """Count one topic in."""
        self.count += 1
        self.records += each.state.messages
        self.bytes += each.bytes
        self.by_class[each.durability] += 1
        if each.queue is not None:
            self.queues += 1
            self.leased += each.queue.in_flight
        if len(self.first) < MOST_TOPICS:
            self.first.append(each)


class Metrics:
    """Answers for the topics that a caller may see."""

    def __init__(self, watches: "Watches") -> None:
        self._watches = watches

    async def show(self, request: Request, topics: Topics) -> Response:
        """Show the figures; JSON if the client accepts it by name."""
        found = await look(topics, request.caller)
        if b"application/json" in (request.header(b"accept") or b""):
            return json_response(self.as_json(topics, request.caller, found))
        return Response(200, render(self.families(topics, request.caller, found)), CONTENT_TYPE)

    def as_json(self, topics: Topics, caller: Caller, found: TopicTotals) -> dict[str, Any]:
        """Return the totals as one object."""
        shown: dict[str, Any] = {
            **{name: int(value) for name, value, _ in self._totals(topics, caller, found)},
            **{f"topics_{name}": count for name, count in found.by_class.items()},
            "ready": topics.ready,
            "replay_progress": _progress(topics),
            "uptime_ms": _uptime_ms(topics),
        }
        meter = meter_of(topics.store)
        if meter is not None:
            syncs = meter.syncs  # once: the log's thread may sync while this is put together
            shown["wal"] = {
                "fsyncs": syncs,
                "frames": meter.frames,
                "batches": meter.batches,
                "bytes_written": meter.bytes_written,
                "rotations": meter.rotations,
                "queue_depth": topics.commits.depth,
                "queue_depth_peak": topics.commits.deepest,
                "submit_full_total": topics.commits.refused,
                "read_only": bool(_read_only(topics)),
                "fsync_count": syncs,
                "fsync_micros_total": meter.sync_us,
            }
        return shown

    def families(self, topics: Topics, caller: Caller, found: TopicTotals) -> Iterator[Family]:
        """Return every figure under its name."""
        for name, value, help_text in self._totals(topics, caller, found):
            yield gauge(f"topics_{name}", help_text, value)
        yield from _pace(topics.scheduler)
        yield from _unread(topics.unread)
        yield gauge("topics_ready", "1 once recovery is over", int(topics.ready))
        yield gauge("topics_recovery_progress", "How much is recovered, 0 to 1", _progress(topics))
        classes = [Sample(n, {"class": name}) for name, n in found.by_class.items()]
        yield Family("topics_topics_by_class", GAUGE, "Topics by durability", classes)
        yield counter("topics_uptime_ms", "Milliseconds since the start", _uptime_ms(topics))
        yield from _each(found.first)
        cut = found.count > len(found.first)
        yield gauge("topics_topic_metrics_truncated", "1 when topics are left out above", int(cut))
        yield gauge("topics_wal_read_only", "1 once writes are refused", _read_only(topics))
        yield from _commits(topics.commits)
        meter = meter_of(topics.store)
        if meter is not None:
            yield from _wal(meter)

    def _totals(
        self, topics: Topics, caller: Caller, found: TopicTotals
    ) -> Iterator[tuple[str, float, str]]:
        yield "topics", found.count, "Topics"
        routers = [r for r in topics.routers.all_of(caller.account) if may_see(r, caller)]
        yield "routers", len(routers), "Routers"
        yield "records_live", found.records, "Records that are kept"
        yield "bytes_live", found.bytes, "Bytes of data and meta kept"
        yield "queue_topics", found.queues, "Topics that are queues"
        yield "queue_leases_in_flight", found.leased, "Jobs that are leased now"
        yield "sse_connections", topics.sse_connections, "Event streams that are open"
        yield "watch_sessions", len(self._watches), "Watches that were made and not given up"


async def look(topics: Topics, caller: Caller) -> TopicTotals:
    """Return the figures of the topics that the caller may see; others have turns between them."""
    now, found = topics.clock.time_ns(), TopicTotals()
    for looked, stream in enumerate(topics.directory.listed(caller), 1):
        if stream is not None:
            found.add(_figures(topics, stream, now))
        if looked % TURN == 0:
            await asyncio.sleep(0)
    return found


def _figures(topics: Topics, stream: "Stream", now_ns: int) -> TopicFigures:
    state = current_state(stream, now_ns)
    return TopicFigures(
        stream.name,
        str(stream.config.to_topic()["durability"]),
        state,
        data_bytes(stream.log, stream.name, state.first_seq),
        topics.queues.of(stream).counters() if is_queue(stream.config) else None,
    )


def _each(figures: list[TopicFigures]) -> Iterator[Family]:
    samples: dict[str, list[Sample]] = {}
    for each in figures:
        values = {
            "head_seq": each.state.last_seq,
            "earliest_seq": each.state.first_seq,
            "records_live": each.state.messages,
            "bytes_live": each.bytes,
        }
        if each.queue is not None:
            values |= {"queue_ready": each.queue.ready, "queue_in_flight": each.queue.in_flight}
        for name, value in values.items():
            samples.setdefault(name, []).append(Sample(value, {"topic": each.name}))
    for name, found in samples.items():
        yield Family(f"topics_topic_{name}", GAUGE, f"{name} of a topic", found)


def _commits(commits: WriteDepth) -> Iterator[Family]:
    waiting = "Writes over HTTP that wait for their commit"
    yield gauge("topics_wal_queue_depth", f"{waiting} now", commits.depth)
    yield gauge("topics_wal_queue_depth_peak", f"{waiting}, at most so far", commits.deepest)
    text = "Writes refused since the log had all that it takes"
    yield counter("topics_wal_submit_full_total", text, commits.refused)


def _wal(meter: WalMeter) -> Iterator[Family]:
    counts = [*meter.sync_counts]  # once: the log's thread may sync while this is put together
    totals = {
        "frames": meter.frames,
        "batches": meter.batches,
        "fsyncs": sum(counts),
        "bytes_written": meter.bytes_written,
        "rotations": meter.rotations,
    }
    for name, value in totals.items():
        yield counter(f"topics_wal_{name}_total", f"{name} of the log since the start", value)
    yield histogram(
        "topics_wal_fsync_latency_us",
        "Microseconds that the disk took to make a commit stable",
        SYNC_BOUNDS_US,
        counts,
        meter.sync_us,
    )


def _pace(scheduler: Scheduler) -> Iterator[Family]:
    """Return how hard the server is pressed, and what it gives up for that."""
    now = scheduler.measures
    yield gauge("topics_pressure", "How hard the server is pressed, 0 to 1", now.pressure)
    yield gauge("topics_delivery_ready", "Topics that wait for their turn", scheduler.depth)
    latency = round(scheduler.latency_ms, 3)
    yield gauge("topics_delivery_latency_ms", "How long topics waited for it lately", latency)
    yield gauge("topics_coalesce_ms", "How long events wait for more records", now.coalesce_ms)
    text = "How long commits wait for more records"
    yield gauge("topics_commit_window_ms", text, now.commit_window_ms)
    yield gauge("topics_deferring", "1 while low priorities are not pushed", int(now.defers))
    yield gauge("topics_refusing", "1 while writes are refused", int(now.refuses))
    yield counter("topics_deliveries_total", "Turns that topics had", scheduler.served)


def _unread(unread: UnreadBudget) -> Iterator[Family]:
    """Return what clients have asked for and not read, and what became of them."""
    text = "Bytes of answers that HTTP clients have not read"
    yield gauge("topics_unread_bytes", text, unread.held)
    yield gauge("topics_unread_max_bytes", "How many they may be, 0: any", unread.most)
    yield gauge("topics_unread_waiting", "Answers that wait until others are read", unread.waiting)
    yield counter("topics_unread_slowed_total", "Answers that had to wait for it", unread.slowed)
    text = "Connections that were closed since they did not read"
    yield counter("topics_unread_closed_total", text, unread.closed)


def _read_only(topics: Topics) -> int:
    return int(topics.store is not None and bool(topics.store.health()))


def _progress(topics: Topics) -> float:
    return 1.0 if topics.ready else topics.replay_progress


def _uptime_ms(topics: Topics) -> int:
    return (topics.clock.time_ns() - topics.started_ns) // 1_000_000
