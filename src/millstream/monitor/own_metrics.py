"""Our own metrics, all below ``millstream_``: names, units and help as Prometheus wants them.

Labels are bounded: a stream and a consumer have one while there are at most a thousand of each, and
subjects never have one. docs/reference/runbook.md says what to do about each figure.
"""

import time
from collections.abc import Iterator

from millstream import __version__
from millstream.http.exposition import COUNTER, GAUGE, Family, Sample, counter, gauge, histogram
from millstream.monitor import health, machine
from millstream.monitor.facts import Facts
from millstream.monitor.kept_figures import KeptFigures
from millstream.monitor.loop_meter import BOUNDS, LoopMeter
from millstream.store.log.log import LOSSES, in_doubt
from millstream.store.wal.meter import SYNC_BOUNDS_US, WalMeter

READER = "millstream.reader"  # what marks a consumer that a Spark query shows itself by

_STORAGE = {
    "backlog_bytes": "Bytes handed to the write-ahead log that wait for their commit.",
    "synced_position": "Position up to which the write-ahead log is on stable storage.",
    "problems": "Problems of the store that an operator must look at; 0 is well.",
}
_COLD = {
    "cold_segments_moved_total": "Sealed segments moved to the cold place.",
    "cold_pieces_fetched_total": "Pieces of cold segments read back.",
    "cold_reads_failed_total": "Reads that the cold place did not answer.",
    "scrub_segments_total": "Sealed segments whose checksums were checked in the background.",
    "scrub_objects_mended_total": "Damaged cold objects written anew from a good copy.",
    "scrub_records_lost_total": "Records that a check found damaged beyond repair.",
}
_WAL = {
    "frames": "Records and control frames written to the write-ahead log.",
    "batches": "Group commits written to the write-ahead log.",
    "written_bytes": "Bytes written to the write-ahead log.",
    "files": "Files of the write-ahead log that were begun.",
}
_PRESSURE = {
    "pressure_ratio": "How hard the server is pressed, 0 to 1; above 0.98 writes may be refused.",
    "scheduler_waiting": "Deliveries and copies that wait for their turn.",
    "scheduler_latency_seconds": "How long deliveries waited for their turn lately, smoothed.",
}
_KERNEL = {
    "cache_hits": ("interest_cache_hits", "Subjects whose receivers were found in the cache."),
    "num_matches": ("interest_matches", "Subjects whose receivers were looked for."),
}


def server(facts: Facts) -> Iterator[Family]:
    """Yield what is true of the whole process."""
    about = {"version": __version__, "server_name": facts.server_name}
    yield gauge("millstream_info", "Which millstream this is; the value is always 1.", 1, about)
    yield from _process(facts)
    yield from _doors(facts)
    for name, value in facts.storage().items():
        told = _STORAGE.get(name, f"{name} of the write-ahead log.")
        yield gauge(f"millstream_wal_{name}", told, value)
    for name, value in facts.cold().items():
        yield counter(f"millstream_{name}", _COLD.get(name, name), value)
    if facts.wal is not None:
        yield from _wal(facts.wal)
    for name, amount in facts.pressure().items():
        if name == "refused_writes":
            told = "Writes refused because the server was pressed and its log full."
            yield counter("millstream_pressure_refused_writes_total", told, amount)
        else:
            yield gauge(f"millstream_{name}", _PRESSURE[name], amount)
    if facts.loop is not None:
        yield _loop(facts.loop)
    yield from _kernel(facts)


def _process(facts: Facts) -> Iterator[Family]:
    problem = health.find_problem(facts, health.HealthQuery())
    yield gauge(
        "millstream_healthy", "1 while /healthz says that all is well, else 0.", not problem
    )
    up = (facts.clock.time_ns() - facts.started_ns) / 1e9
    yield gauge("millstream_uptime_seconds", "Time since the process started.", up)
    told = "Processor time that the process has used."
    yield counter("millstream_cpu_seconds_total", told, time.process_time())
    told = "Memory that the process occupies."
    yield gauge("millstream_resident_memory_bytes", told, machine.resident_bytes())
    used, total = facts.disk()
    if total:
        told = "Size of the file system that holds the data directory."
        yield gauge("millstream_disk_size_bytes", told, total)
        told = "Room left on the file system that holds the data directory."
        yield gauge("millstream_disk_free_bytes", told, total - used)


def _doors(facts: Facts) -> Iterator[Family]:
    moved, http = facts.traffic(), facts.http_traffic
    for unit, told in (("messages", "Messages"), ("bytes", "Payload bytes")):
        key = "msgs" if unit == "messages" else "bytes"
        yield Family(
            f"millstream_nats_{unit}_total",
            COUNTER,
            f"{told} that clients sent (in) and received (out) over NATS.",
            [Sample(moved.get(f"{way}_{key}", 0), {"direction": way}) for way in ("in", "out")],
        )
    told = "Clients that are connected over NATS."
    yield gauge("millstream_nats_connections", told, moved.get("connections", 0))
    told = "Clients closed because they did not take what was sent to them."
    yield counter("millstream_slow_consumers_total", told, moved.get("slow_consumers", 0))
    reasons = sorted(facts.closed_by_reason().items())
    yield Family(
        "millstream_connections_closed_total",
        COUNTER,
        "Connections that ended, by reason.",
        [Sample(count, {"reason": reason}) for reason, count in reasons],
    )
    yield Family(
        "millstream_http_requests_total",
        COUNTER,
        "HTTP answers, by status.",
        [Sample(count, {"status": str(s)}) for s, count in sorted(facts.statuses.items())],
    )
    yield Family(
        "millstream_http_body_bytes_total",
        COUNTER,
        "Bytes of whole HTTP bodies that came in and went out.",
        [Sample(http.get(f"{way}_bytes", 0), {"direction": way}) for way in ("in", "out")],
    )


def _wal(meter: WalMeter) -> Iterator[Family]:
    totals = {
        "frames": meter.frames,
        "batches": meter.batches,
        "written_bytes": meter.bytes_written,
        "files": meter.rotations,
    }
    for name, value in totals.items():
        yield counter(f"millstream_wal_{name}_total", _WAL[name], value)
    yield histogram(
        "millstream_wal_sync_seconds",
        "How long the disk took to make a commit stable: what an ack waits for.",
        [bound / 1e6 for bound in SYNC_BOUNDS_US],
        meter.sync_counts,
        meter.sync_us / 1e6,
    )


def _loop(meter: LoopMeter) -> Family:
    return histogram(
        "millstream_loop_hold_seconds",
        "How late the loop came to a timer of 50 ms: how long something kept it from its work.",
        BOUNDS,
        meter.counts,
        meter.total,
    )


def _kernel(facts: Facts) -> Iterator[Family]:
    spaces = [account.interest for account in facts.accounts()]
    for key, (name, told) in _KERNEL.items():
        total = sum(space.get(key, 0) for space in spaces)
        yield counter(f"millstream_{name}_total", told, total)
    total = sum(space.get("num_subscriptions", 0) for space in spaces)
    yield gauge("millstream_subscriptions", "Subscriptions of all accounts.", total)


_PER_STREAM = {
    "appended_records_total": (COUNTER, "Records that a stream was given; its last sequence."),
    "read_records_total": (COUNTER, "Records read from a stream since the start, by anybody."),
    "evicted_records_total": (
        COUNTER,
        "Records that limits, age, acks, purges and deletes took from a stream.",
    ),
    "gap_records_total": (
        COUNTER,
        "Records of a stream that the disk lost, or a restart where they are in memory alone.",
    ),
    "records": (GAUGE, "Records that a stream holds."),
    "stored_bytes": (GAUGE, "Bytes that a stream holds."),
    "consumers": (GAUGE, "Consumers of a stream."),
}


def streams(found: KeptFigures) -> Iterator[Family]:
    """Yield the counters of each stream, and what was lost of those that lost anything."""
    yield gauge("millstream_streams", "Streams of all accounts.", found.total_streams)
    told = "1 when there are more streams or consumers than get a label of their own here."
    yield gauge("millstream_metrics_truncated", told, found.is_cut)
    samples: dict[str, list[Sample]] = {name: [] for name in _PER_STREAM}
    certain, doubtful = list[Sample](), list[Sample]()
    for each in found.streams:
        state = each.state
        labels = {"account": each.account.account, "stream": each.stream.name}
        gaps = [gap for gap in state.gaps if gap.reason in LOSSES]
        lost = sum(gap.size for gap in gaps)
        values = {
            "appended_records_total": state.last_seq,
            "read_records_total": each.stream.records_read,
            "evicted_records_total": max(0, state.last_seq - state.messages - lost),
            "gap_records_total": lost,
            "records": state.messages,
            "stored_bytes": state.bytes,
            "consumers": each.account.consumers.count(each.stream),
        }
        for name, value in values.items():
            samples[name].append(Sample(value, labels))
        if gaps:
            doubt = in_doubt(gaps, 1, gaps[-1].last)
            certain.append(Sample(lost - doubt, labels))
            doubtful.append(Sample(doubt, labels))
    for name, (kind, text) in _PER_STREAM.items():
        yield Family(f"millstream_stream_{name}", kind, text, samples[name])
    sure, more = "millstream_stream_lost_records", "millstream_stream_in_doubt_records"
    yield Family(sure, GAUGE, "Records that the disk lost for sure, or a restart.", certain)
    yield Family(more, GAUGE, "Records that it may have lost besides, at most.", doubtful)


def consumers(found: KeptFigures) -> Iterator[Family]:
    """Yield how far behind consumers are, and readers that keep their position themselves."""
    lag, pending, readers, again = list[Sample](), list[Sample](), list[Sample](), list[Sample]()
    for each in found.consumers:
        place = found.streams[each.place]
        labels = {
            "account": place.account.account,
            "stream": place.stream.name,
            "consumer": each.consumer.name,
        }
        behind = Sample(each.info["num_pending"], labels)
        if each.consumer.config.metadata.get(READER) is not None:
            readers.append(behind)
            continue
        lag.append(behind)
        pending.append(Sample(each.info["num_ack_pending"], labels))
        again.append(Sample(each.info["num_redelivered"], labels))
    told = "Records that a consumer has not delivered yet."
    yield Family("millstream_consumer_lag_records", GAUGE, told, lag)
    told = "Records that a consumer delivered and that wait for their acks."
    yield Family("millstream_consumer_ack_pending_records", GAUGE, told, pending)
    told = "Records that wait for their acks after more than one delivery."
    yield Family("millstream_consumer_redelivered_records", GAUGE, told, again)
    told = "Records that a reader, such as a Spark query, has not committed yet."
    yield Family("millstream_reader_lag_records", GAUGE, told, readers)
