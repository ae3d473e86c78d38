"""/metrics: the figures under the names that boards for NATS already use, and a few of our own.

The usual names come from an exporter beside the server that flattens /varz and /jsz; they are made
here in the same way. Boards that expect everything below one prefix ask for ``?prefix=nats``.
Subjects never become labels, and only so many streams and consumers do.
"""

import asyncio
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from millstream.errors import BadRequest
from millstream.http.exposition import (
    CONTENT_TYPE,
    GAUGE,
    Family,
    Sample,
    gauge,
    legal_name,
    render,
)
from millstream.monitor import health, own_metrics, varz
from millstream.monitor.facts import Facts, JetStreamAccount, JetStreamFacts
from millstream.monitor.kept_figures import KeptFigures, gather

if TYPE_CHECKING:
    from millstream.consumers.consumer import Consumer
    from millstream.streams.stream import Stream

__all__ = ["CONTENT_TYPE", "describe"]

_TEXTS = ("server_id", "server_name", "version", "domain", "name")
_TIMES = ("start", "config_load_time")
# Settings that the usual names leave out, and the figures of this very page.
_SKIPPED = ("leaf", "http_req_stats")


async def describe(facts: Facts, prefix: str = "") -> bytes:
    """Return the page; with ``prefix`` both families of names begin with it.

    Streams and consumers are looked at a few at a time, so that others have their turns.
    """
    if prefix and legal_name(prefix) != prefix:
        raise BadRequest("a prefix is made of letters, digits and underscores")
    server, kept = prefix or "gnatsd", prefix or "jetstream"
    families = [*_varz(facts, server), *_connz(facts, server), *_healthz(facts, server)]
    families += own_metrics.server(facts)
    page = [render(families)]
    if facts.jetstream is not None:
        found = await gather(facts.jetstream, facts.clock.time_ns())
        for part in (
            _jetstream(facts, facts.jetstream, found, kept),
            own_metrics.streams(found),
            own_metrics.consumers(found),
        ):
            page.append(render(part))
            await asyncio.sleep(0)
    return b"".join(page)


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


def _jetstream(
    facts: Facts, kept: JetStreamFacts, found: KeptFigures, prefix: str
) -> Iterator[Family]:
    who = {
        "server_id": facts.server_id,
        "server_name": facts.server_name,
        "cluster": facts.cluster_name,
        "domain": kept.domain,
        "meta_leader": "",
        "is_meta_leader": "true",
    }
    yield from _server_totals(kept, found, who, prefix)
    yield from _accounts(found, who, prefix)
    labels = [_stream_labels(facts, each.account, each.stream, who) for each in found.streams]
    yield from _streams(found, labels, prefix)
    yield from _consumers(facts, found, labels, prefix)


Labels = dict[str, str]


def _server_totals(
    kept: JetStreamFacts, found: KeptFigures, who: Labels, prefix: str
) -> Iterator[Family]:
    totals = {
        "jetstream_disabled": 0,
        "total_streams": found.total_streams,
        "total_consumers": found.total_consumers,
        "total_messages": found.messages,
        "total_message_bytes": found.bytes,
        "max_memory": kept.max_memory,
        "max_storage": kept.max_storage,
    }
    for name, value in totals.items():
        yield gauge(f"{prefix}_server_{name}", f"{name} of the server", value, who)


def _accounts(found: KeptFigures, who: Labels, prefix: str) -> Iterator[Family]:
    for name, storage in (("storage_used", "file"), ("memory_used", "memory")):
        samples = [
            Sample(sizes[storage], {**who, **_account_labels(account)})
            for account, sizes in found.accounts
        ]
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


def _streams(found: KeptFigures, labels: list[Labels], prefix: str) -> Iterator[Family]:
    figures: dict[str, list[Sample]] = {}
    for each, label in zip(found.streams, labels, strict=True):
        state, config = each.state, each.stream.config
        values = {
            "total_messages": state.messages,
            "total_bytes": state.bytes,
            "first_seq": state.first_seq if state.last_seq else 0,
            "last_seq": state.last_seq,
            "consumer_count": each.account.consumers.count(each.stream),
            "subject_count": each.stream.contents.num_subjects(),
            "limit_messages": config.max_msgs,
            "limit_bytes": config.max_bytes,
        }
        for name, value in values.items():
            figures.setdefault(name, []).append(Sample(value, label))
    for name, samples in figures.items():
        yield Family(f"{prefix}_stream_{name}", GAUGE, f"{name} of a stream", samples)


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
    facts: Facts, found: KeptFigures, labels: list[Labels], prefix: str
) -> Iterator[Family]:
    now_ns = facts.clock.time_ns()
    infos = [
        (each.info, _consumer_labels(facts, each.consumer, labels[each.place]))
        for each in found.consumers
    ]
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
