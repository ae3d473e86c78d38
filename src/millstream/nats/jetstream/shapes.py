"""How streams, consumers and times look in answers."""

from typing import Any

from millstream.consumers.consumer import Consumer
from millstream.store.log.log import LOSSES, in_doubt
from millstream.streams.config.config import shown_metadata
from millstream.streams.config.times import rfc3339
from millstream.streams.stream import Stream

MOST_LOST = 10_000


def stream_config(stream: Stream, *, full: bool = True) -> dict[str, Any]:
    """Return a configuration as answers show it."""
    config = stream.config
    metadata = shown_metadata(config.metadata, config.required_level, full=full)
    return {**config.to_request(), "metadata": metadata}


def stream_state(stream: Stream, consumers: int) -> dict[str, Any]:
    """Return a stream's state object."""
    state = stream.state()
    shown: dict[str, Any] = {
        "messages": state.messages,
        "bytes": state.bytes,
        "first_seq": state.first_seq if state.last_seq or stream.config.first_seq == 1 else 0,
        "first_ts": rfc3339(state.first_ts_ns),
        "last_seq": state.last_seq,
        "last_ts": rfc3339(state.last_ts_ns),
    }
    if state.messages:
        shown["num_subjects"] = stream.contents.num_subjects()
    if state.num_deleted and state.messages:
        shown["num_deleted"] = state.num_deleted
    lost = _lost(stream)
    if lost:
        shown["lost"] = {"msgs": lost, "bytes": 0}  # nobody knows how large they were
        if doubt := in_doubt(state.gaps, 1, state.last_seq):
            shown["lost"]["in_doubt"] = doubt
    shown["consumer_count"] = consumers
    return shown


def _lost(stream: Stream) -> list[int]:
    """Return the sequences whose records were damaged, as many as an answer should hold."""
    lost: list[int] = []
    for gap in stream.log.state().gaps:
        if gap.reason in LOSSES and len(lost) < MOST_LOST:
            lost += range(gap.first, min(gap.last, gap.first + MOST_LOST) + 1)
    return lost[:MOST_LOST]


def stream_info(
    stream: Stream, consumers: int, now_ns: int, *, full: bool = True
) -> dict[str, Any]:
    """Return a StreamInfo."""
    return {
        "config": stream_config(stream, full=full),
        "created": rfc3339(stream.created_ns),
        "state": stream_state(stream, consumers),
        **_fed_by(stream),
        "ts": rfc3339(now_ns),
    }


def _fed_by(stream: Stream) -> dict[str, Any]:
    """Return where a stream's records come from, other than from publishers."""
    found = [feed.info() for feed in stream.feeds]
    if not found:
        return {}
    return {"mirror": found[0]} if stream.config.mirror is not None else {"sources": found}


def _position(pair: tuple[int, int], last_active_ns: int) -> dict[str, Any]:
    shown: dict[str, Any] = {"consumer_seq": pair[0], "stream_seq": pair[1]}
    if last_active_ns:
        shown["last_active"] = rfc3339(last_active_ns)
    return shown


def _delivered(consumer: Consumer) -> tuple[int, int]:
    """Return the last delivery; one in memory without any shows how far it has read."""
    in_memory = consumer.config.mem_storage or consumer.stream.config.storage == "memory"
    if in_memory and consumer.ledger.delivered == (0, 0):
        return 0, consumer.cursor.read_to
    return consumer.ledger.delivered


def consumer_info(consumer: Consumer, now_ns: int, *, full: bool = True) -> dict[str, Any]:
    """Return a ConsumerInfo."""
    consumer.feed.follow(closely=True)
    config, ledger = consumer.config, consumer.ledger
    shown: dict[str, Any] = {
        "stream_name": consumer.stream.name,
        "name": consumer.name,
        "created": rfc3339(consumer.created_ns),
        "config": {
            **config.to_request(),
            "metadata": shown_metadata(config.metadata, config.required_level, full=full),
        },
        "delivered": _position(_delivered(consumer), ledger.last_delivered_ns),
        "ack_floor": _position(ledger.floor, ledger.last_acked_ns),
        "num_ack_pending": consumer.feed.in_flight,
        "num_redelivered": len(ledger.redelivered) if config.max_deliver != 1 else 0,
        "num_waiting": consumer.desk.waiting,
        "num_pending": consumer.feed.left,
    }
    if consumer.feed.gate is not None:
        shown["millstream_keys"] = consumer.feed.gate.shown()
    if consumer.desk.is_bound:
        shown["push_bound"] = True
    if consumer.pause.left_ns:
        shown["paused"] = True
        shown["pause_remaining"] = consumer.pause.left_ns
    if config.priority_groups and consumer.pulls is not None:
        pin = consumer.pulls.group.pin
        group: dict[str, Any] = {"group": config.priority_groups[0]}
        if pin.id:
            group["pinned_client_id"] = pin.id
        group["pinned_ts"] = rfc3339(pin.since_ns)
        shown["priority_groups"] = [group]
    shown["ts"] = rfc3339(now_ns)
    return shown
