"""/metrics: the figures under the names that boards for NATS already use, and a few of our own.

The usual names come from an exporter beside the server that flattens /varz and /jsz; they are made
here in the same way. Boards that expect everything below one prefix ask for ``?prefix=nats``.
Subjects never become labels, and only so many streams and consumers do.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from millstream import __version__
from millstream.errors import BadRequest
from millstream.http.exposition import (
    CONTENT_TYPE,
    COUNTER,
    GAUGE,
    Family,
    Sample,
    counter,
    gauge,
    histogram,
    legal_name,
    render,
)
from millstream.monitor import health, varz
from millstream.monitor.facts import Facts, JetStreamAccount, JetStreamFacts
from millstream.store.log.log import DAMAGE, in_doubt
from millstream.store.wal.meter import SYNC_BOUNDS_US, WalMeter

if TYPE_CHECKING:
    from millstream.consumers.consumer import Consumer
    from millstream.streams.stream import Stream

__all__ = ["CONTENT_TYPE", "describe"]

MOST_STREAMS = 1000
MOST_CONSUMERS = 1000

_TEXTS = ("server_id", "server_name", "version", "domain", "name")
_TIMES = ("start", "config_load_time")
# Settings that the usual names leave out, and the figures of this very page.
_SKIPPED = ("leaf", "http_req_stats")


def describe(facts: Facts, prefix: str = "") -> bytes:
    """Return the page; with ``prefix`` both families of names begin with it."""
    if prefix and legal_name(prefix) != prefix:
        raise BadRequest("a prefix is made of letters, digits and underscores")
    server, kept = prefix or "gnatsd", prefix or "jetstream"
    families = [*_varz(facts, server), *_connz(facts, server), *_healthz(facts, server)]
    if facts.jetstream is not None:
        families += _jetstream(facts, facts.jetstream, kept)
    return render([*families, *_own(facts)])


def _varz(facts: Facts, prefix: str) -> Iterator[Family]:
    who = {"server_id": facts.server_id}
    for name, value in _flat(varz.describe(facts), ""):
        full, last = f"{prefix}_varz_{name}", name.rsplit("_", 1)[-1]
        if isinstance(value, str) and name in _TIMES:
            yield gauge(full, name, int(_milliseconds(value)), who)
        elif isinstance(value, str) and (name in _TEXTS or last in _TEXTS):
            yield gauge(full, name, 1, {**who, "value": value})
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield gauge(full, name, value, who)


def _flat(shown: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, value in shown.items():
        name = f"{path}_{key}" if path else key
        if name in _SKIPPED:
            continue
        if isinstance(value, dict):
            yield from _flat(value, name)
        else:
            yield legal_name(name), value


def _milliseconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp() * 1000


def _connz(facts: Facts, prefix: str) -> Iterator[Family]:
    who = {"server_id": facts.server_id}
    for name, value in facts.open_totals().items():
        yield gauge(f"{prefix}_connz_{name}", f"{name} of the open connections", value, who)


def _healthz(facts: Facts, prefix: str) -> Iterator[Family]:
    """Show health as the exporter does: 0 is well, 1 is not."""
    problem = health.find_problem(facts, health.HealthQuery())
    well, who = problem is None, {"server_id": facts.server_id}
    yield gauge(f"{prefix}_healthz_status", "0 while the server works, else 1", int(not well), who)
    word = {**who, "value": "ok" if problem is None else problem.status}
    yield gauge(f"{prefix}_healthz_status_value", "1 while the server works, else 0", well, word)


# --- JetStream


def _jetstream(facts: Facts, kept: JetStreamFacts, prefix: str) -> Iterator[Family]:
    who = {
        "server_id": facts.server_id,
        "server_name": facts.server_name,
        "cluster": facts.cluster_name,
        "domain": kept.domain,
        "meta_leader": "",
        "is_meta_leader": "true",
    }
    places = [(a, s) for a in kept.accounts() for s in a.streams()]
    yield from _server_totals(kept, places, who, prefix)
    yield from _accounts(kept, who, prefix)
    shown = places[:MOST_STREAMS]
    labels = [_stream_labels(facts, account, stream, who) for account, stream in shown]
    yield from _streams(shown, labels, prefix)
    consumers = [
        (consumer, _consumer_labels(facts, consumer, label))
        for (account, stream), label in zip(shown, labels, strict=True)
        for consumer in account.consumers.of(stream)
    ]
    now_ns = facts.clock.time_ns()
    yield from _consumers(now_ns, kept, consumers[:MOST_CONSUMERS], prefix)
    cut = len(places) > MOST_STREAMS or len(consumers) > MOST_CONSUMERS
    yield gauge("millstream_metrics_truncated", "1 when not everything got a label here", cut)


Place = tuple[JetStreamAccount, "Stream"]
Labels = dict[str, str]


def _server_totals(
    kept: JetStreamFacts, places: list[Place], who: Labels, prefix: str
) -> Iterator[Family]:
    states = [stream.state() for _, stream in places]
    totals = {
        "jetstream_disabled": 0,
        "total_streams": len(places),
        "total_consumers": sum(account.consumers.count(stream) for account, stream in places),
        "total_messages": sum(state.messages for state in states),
        "total_message_bytes": sum(state.bytes for state in states),
        "max_memory": kept.max_memory,
        "max_storage": kept.max_storage,
    }
    for name, value in totals.items():
        yield gauge(f"{prefix}_server_{name}", f"{name} of the server", value, who)


def _accounts(kept: JetStreamFacts, who: Labels, prefix: str) -> Iterator[Family]:
    used: dict[str, list[Sample]] = {"storage_used": [], "memory_used": []}
    for account in kept.accounts():
        labels = {**who, **_account_labels(account)}
        sizes = {"memory": 0, "file": 0}
        for stream in account.streams():
            sizes[stream.config.storage] += stream.state().bytes
        used["storage_used"].append(Sample(sizes["file"], labels))
        used["memory_used"].append(Sample(sizes["memory"], labels))
    for name, samples in used.items():
        yield Family(f"{prefix}_account_{name}", GAUGE, f"{name} in bytes", samples)


def _account_labels(account: JetStreamAccount) -> Labels:
    return dict.fromkeys(("account", "account_name", "account_id"), account.account)


def _stream_labels(
    facts: Facts, account: JetStreamAccount, stream: "Stream", who: Labels
) -> Labels:
    return {
        **who,
        **_account_labels(account),
        "stream_name": stream.name,
        "stream_leader": facts.server_name,
        "is_stream_leader": "true",
        "stream_raft_group": "",
    }


def _streams(places: list[Place], labels: list[Labels], prefix: str) -> Iterator[Family]:
    figures: dict[str, list[Sample]] = {}
    for (account, stream), label in zip(places, labels, strict=True):
        state, config = stream.state(), stream.config
        values = {
            "total_messages": state.messages,
            "total_bytes": state.bytes,
            "first_seq": state.first_seq if state.last_seq else 0,
            "last_seq": state.last_seq,
            "consumer_count": account.consumers.count(stream),
            "subject_count": stream.contents.num_subjects(),
            "limit_messages": config.max_msgs,
            "limit_bytes": config.max_bytes,
        }
        for name, value in values.items():
            figures.setdefault(name, []).append(Sample(value, label))
    for name, samples in figures.items():
        yield Family(f"{prefix}_stream_{name}", GAUGE, f"{name} of a stream", samples)
    yield from _losses(places, labels)


def _losses(places: list[Place], labels: list[Labels]) -> Iterator[Family]:
    """Yield what the disk lost of each stream that lost anything."""
    certain, doubtful = [], []
    for (_, stream), label in zip(places, labels, strict=True):
        gaps = [gap for gap in stream.state().gaps if gap.reason in DAMAGE]
        if gaps:
            doubt = in_doubt(gaps, 1, gaps[-1].last)
            certain.append(Sample(sum(gap.size for gap in gaps) - doubt, label))
            doubtful.append(Sample(doubt, label))
    if certain:
        lost, more = "millstream_stream_lost_records", "millstream_stream_in_doubt_records"
        yield Family(lost, GAUGE, "Records that the disk lost for sure", certain)
        yield Family(more, GAUGE, "Records that it may have lost besides, at most", doubtful)


def _consumer_labels(facts: Facts, consumer: "Consumer", label: Labels) -> Labels:
    return {
        **label,
        "consumer_name": consumer.name,
        "consumer_leader": facts.server_name,
        "is_consumer_leader": "true",
        "consumer_desc": consumer.config.description,
    }


_CONSUMER_FIGURES = {
    "delivered_consumer_seq": ("delivered", "consumer_seq"),
    "delivered_stream_seq": ("delivered", "stream_seq"),
    "ack_floor_consumer_seq": ("ack_floor", "consumer_seq"),
    "ack_floor_stream_seq": ("ack_floor", "stream_seq"),
    "num_ack_pending": ("num_ack_pending",),
    "num_redelivered": ("num_redelivered",),
    "num_waiting": ("num_waiting",),
    "num_pending": ("num_pending",),
}
_CONSUMER_TIMES = {"last_delivery_seconds": "delivered", "last_ack_seconds": "ack_floor"}


def _consumers(
    now_ns: int, kept: JetStreamFacts, consumers: list[tuple["Consumer", Labels]], prefix: str
) -> Iterator[Family]:
    infos = [(kept.shapes.consumer_info(consumer, now_ns), label) for consumer, label in consumers]
    for name, path in _CONSUMER_FIGURES.items():
        samples = [Sample(_at(info, path), label) for info, label in infos]
        yield Family(f"{prefix}_consumer_{name}", GAUGE, f"{name} of a consumer", samples)
    for name, key in _CONSUMER_TIMES.items():
        samples = [
            Sample(now_ns / 1e9 - _milliseconds(info[key]["last_active"]) / 1000, label)
            for info, label in infos
            if "last_active" in info[key]
        ]
        yield Family(f"{prefix}_consumer_{name}", GAUGE, "seconds since then", samples)


def _at(info: Any, path: tuple[str, ...]) -> int:
    for key in path:
        info = info[key]
    return int(info)


# --- our own


def _own(facts: Facts) -> Iterator[Family]:
    about = {"version": __version__, "server_name": facts.server_name}
    yield gauge("millstream_info", "Which millstream this is", 1, about)
    for name, value in facts.storage().items():
        kind = COUNTER if name.endswith("_total") else GAUGE
        yield Family(f"millstream_wal_{name}", kind, f"{name} of the log", [Sample(value)])
    for name, value in facts.cold().items():
        yield Family(f"millstream_{name}", COUNTER, name.replace("_", " "), [Sample(value)])
    if facts.wal is not None:
        yield from _wal(facts.wal)
    reasons = sorted(facts.closed_by_reason().items())
    yield Family(
        "millstream_connections_closed_total",
        COUNTER,
        "Connections that ended, by reason",
        [Sample(count, {"reason": reason}) for reason, count in reasons],
    )
    yield Family(
        "millstream_http_requests_total",
        COUNTER,
        "HTTP answers by status",
        [Sample(count, {"status": str(s)}) for s, count in sorted(facts.statuses.items())],
    )
    spaces = [account.interest for account in facts.accounts()]
    hits = sum(space.get("cache_hits", 0) for space in spaces)
    yield counter("millstream_interest_cache_hits_total", "Subjects found in the cache", hits)


def _wal(meter: WalMeter) -> Iterator[Family]:
    totals = {
        "frames": meter.frames,
        "batches": meter.batches,
        "written_bytes": meter.bytes_written,
        "files": meter.rotations,
    }
    for name, value in totals.items():
        yield counter(f"millstream_wal_{name}_total", f"{name} of the log since the start", value)
    bounds = [bound / 1e6 for bound in SYNC_BOUNDS_US]
    yield histogram(
        "millstream_wal_sync_seconds",
        "How long the disk took to make a commit stable",
        bounds,
        meter.sync_counts,
        meter.sync_us / 1e6,
    )
