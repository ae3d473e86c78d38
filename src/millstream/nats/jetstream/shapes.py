"""How streams, consumers and times look in answers."""

from datetime import UTC, datetime
from typing import Any

from millstream.consumers.consumer import Consumer
from millstream.streams.config import shown_metadata
from millstream.streams.stream import Stream

ZERO_TIME = "0001-01-01T00:00:00Z"


def rfc3339(ts_ns: int) -> str:
    """Return a time with as many fractional digits as it needs; zero is the zero time."""
    if ts_ns <= 0:
        return ZERO_TIME
    seconds, fraction = divmod(ts_ns, 10**9)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    digits = f"{fraction:09d}".rstrip("0")
    return f"{text}.{digits}Z" if digits else f"{text}Z"


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
        "first_seq": state.first_seq if state.last_seq else 0,
        "first_ts": rfc3339(state.first_ts_ns),
        "last_seq": state.last_seq,
        "last_ts": rfc3339(state.last_ts_ns),
    }
    if state.messages:
        shown["num_subjects"] = stream.num_subjects()
    if state.num_deleted and state.messages:
        shown["num_deleted"] = state.num_deleted
    shown["consumer_count"] = consumers
    return shown


def stream_info(
    stream: Stream, consumers: int, now_ns: int, *, full: bool = True
) -> dict[str, Any]:
    """Return a StreamInfo."""
    return {
        "config": stream_config(stream, full=full),
        "created": rfc3339(stream.created_ns),
        "state": stream_state(stream, consumers),
        "ts": rfc3339(now_ns),
    }


def _position(pair: tuple[int, int], last_active_ns: int) -> dict[str, Any]:
    shown: dict[str, Any] = {"consumer_seq": pair[0], "stream_seq": pair[1]}
    if last_active_ns:
        shown["last_active"] = rfc3339(last_active_ns)
    return shown


def consumer_info(consumer: Consumer, now_ns: int, *, full: bool = True) -> dict[str, Any]:
    """Return a ConsumerInfo."""
    config, ledger = consumer.config, consumer.ledger
    shown: dict[str, Any] = {
        "stream_name": consumer.stream.name,
        "name": consumer.name,
        "created": rfc3339(consumer.created_ns),
        "config": {
            **config.to_request(),
            "metadata": shown_metadata(config.metadata, 0, full=full),
        },
        "delivered": _position(ledger.delivered, consumer.last_delivered_ns),
        "ack_floor": _position(ledger.floor, consumer.last_acked_ns),
        "num_ack_pending": len(ledger.pending),
        "num_redelivered": len(ledger.redelivered),
        "num_waiting": len(consumer.line),
        "num_pending": consumer.cursor.pending(),
    }
    if consumer.is_bound:
        shown["push_bound"] = True
    shown["ts"] = rfc3339(now_ns)
    return shown
