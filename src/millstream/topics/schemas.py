"""Shapes of the HTTP API as JSON Schema; requests come from the types that read them."""

from typing import Any

import msgspec

from millstream.topics import bodies
from millstream.topics.api import queues, redrive

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
SWITCH: Schema = {"type": "boolean"}
ANYTHING: Schema = {}
MILLISECONDS: Schema = {"type": "integer", "minimum": 0, "description": "milliseconds"}


def ref(name: str) -> Schema:
    """Return a reference to a shape by name."""
    return {"$ref": f"#/components/schemas/{name}"}


def listed(item: Schema) -> Schema:
    """Return a list of something."""
    return {"type": "array", "items": item}


def either(*schemas: Schema) -> Schema:
    """Return what may be any of these."""
    return {"anyOf": list(schemas)}


def shape(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """Return an object with these fields; clients must expect more of them."""
    made: Schema = {"type": "object", "properties": {**required, **(optional or {})}}
    if required:
        made["required"] = sorted(required)
    return made


NULL: Schema = {"type": "null"}
FREE: Schema = {"type": "object"}

_POSITIONS = {"head_seq": COUNT, "earliest_seq": COUNT}

_ANSWERS: dict[str, Schema] = {
    "Error": shape(
        {"error": shape({"code": TEXT, "message": TEXT}, {"detail": FREE})},
    ),
    "Performance": shape(
        {"server_total_ms": {"type": "number"}},
        {
            "wal_append_ms": {"type": "number"},
            "fsync_ms": {"type": "number"},
            "throttle_wait_ms": {"type": "number"},
            "records_scanned": COUNT,
            "cold_segments_read": COUNT,
        },
    ),
    "RecordIn": shape(
        {"data": ANYTHING},
        {"tag": TEXT, "node": TEXT, "meta": FREE, "subject": TEXT},
    ),
    "Record": shape(
        {"$seq": COUNT, "$ts": MILLISECONDS},
        {"data": ANYTHING, "$tag": TEXT, "$node": TEXT, "$subject": TEXT, "meta": FREE},
    ),
    "WriteBody": shape(
        {"records": {**listed(ref("RecordIn")), "minItems": 1, "maxItems": 10_000}},
        {
            "node": TEXT,
            "idempotency_key": TEXT,
            "create": SWITCH,
            "config": ref("TopicConfig"),
            "disable_backpressure": SWITCH,
            "delay_ms": MILLISECONDS,
        },
    ),
    "TopicConfig": shape(
        {},
        {
            "type": {"enum": ["log", "queue"]},
            "ttl_ms": MILLISECONDS,
            "cap_records": COUNT,
            "cap_bytes": COUNT,
            "discard": {"enum": ["old", "reject"]},
            "durable": SWITCH,
            "durability": {"enum": ["ephemeral", "memory", "disk", "fsync"]},
            "priority": either({"type": "integer"}, NULL),
            "auto_priority": SWITCH,
            "auto_create": SWITCH,
            "idempotency_window_ms": MILLISECONDS,
            "dedupe_node": SWITCH,
            "lease_ms": MILLISECONDS,
            "claim_jitter_ms": MILLISECONDS,
            "max_deliveries": COUNT,
            "dead_letter": either(TEXT, NULL),
            "leases_durable": SWITCH,
            "key": TEXT,
            "subjects": listed(TEXT),
        },
    ),
    "TopicChanged": shape(
        {"topic": TEXT, "created": SWITCH, "config": ref("TopicConfig")},
        {"performance": ref("Performance")},
    ),
    "Topic": shape(
        {
            "topic": TEXT,
            "type": TEXT,
            "next_seq": COUNT,
            "count": COUNT,
            "bytes": COUNT,
            "config": ref("TopicConfig"),
            "effective_priority": {"type": "integer"},
            "last_write_ts": either(COUNT, NULL),
            "last_read_ts": either(COUNT, NULL),
            **_POSITIONS,
        },
        {"queue": FREE, "performance": ref("Performance")},
    ),
    "TopicList": shape(
        {"topics": listed(shape({"topic": TEXT, "count": COUNT, "bytes": COUNT, **_POSITIONS}))},
        {"next_cursor": TEXT, "performance": ref("Performance")},
    ),
    "TopicDeleted": shape(
        {"topic": TEXT, "deleted": SWITCH, "routers_removed": listed(TEXT)},
        {"performance": ref("Performance")},
    ),
    "Written": shape(
        {
            "topic": TEXT,
            "first_seq": COUNT,
            "last_seq": COUNT,
            "head_seq": COUNT,
            "count": COUNT,
            "created": SWITCH,
            "deduped": SWITCH,
        },
        {"seqs": listed(COUNT), "performance": ref("Performance")},
    ),
    "Tombstone": shape(
        {
            "gap_from": COUNT,
            "gap_to": COUNT,
            "reason": TEXT,
            "missed_estimate": COUNT,
            **_POSITIONS,
        },
        {"in_doubt": COUNT},
    ),
    "Page": shape(
        {
            "topic": TEXT,
            "records": listed(ref("Record")),
            "next_from_seq": COUNT,
            "caught_up": SWITCH,
            "tombstone": either(ref("Tombstone"), NULL),
            "lag": COUNT,
            **_POSITIONS,
        },
        {"performance": ref("Performance")},
    ),
    "RecordsDeleted": shape(
        {"topic": TEXT, "deleted": COUNT, "count": COUNT, "bytes": COUNT, **_POSITIONS},
        {"performance": ref("Performance")},
    ),
    "Watch": shape(
        {
            "wid": TEXT,
            "stream_url": TEXT,
            "session_ttl_ms": MILLISECONDS,
            "topics": {"type": "object", "additionalProperties": FREE},
        },
        {"performance": ref("Performance")},
    ),
    "ReadPlan": shape(
        {
            "stream": TEXT,
            "incarnation": COUNT,
            "first_seq": COUNT,
            "last_seq": COUNT,
            "gaps": listed({"type": "array"}),
            "segments": listed(FREE),
            "tail": shape({"from_seq": COUNT, "to_seq": COUNT}),
        },
        {"identity": TEXT, "next_from_seq": COUNT},
    ),
    "Claimed": shape({"topic": TEXT, "claimed": listed(FREE), "count": COUNT, "ready": COUNT}),
    "Redriven": shape(
        {
            "topic": TEXT,
            "redriven": COUNT,
            "skipped": listed(COUNT),
            "why": {"type": "object", "additionalProperties": COUNT},
            "to": {"type": "object", "additionalProperties": COUNT},
        },
        {"next_from_seq": COUNT, "performance": ref("Performance")},
    ),
    "Router": shape(
        {"router": TEXT, "source": TEXT, "dest": TEXT, "guarantee": TEXT},
        {"created": SWITCH, "forwarded_total": COUNT, "performance": ref("Performance")},
    ),
    "RouterList": shape(
        {"routers": listed(ref("Router"))},
        {"next_cursor": TEXT, "performance": ref("Performance")},
    ),
    "MessageBody": shape(
        {"subject": TEXT},
        {
            "data": ANYTHING,
            "text": TEXT,
            "base64": TEXT,
            "headers": {"type": "object", "additionalProperties": either(TEXT, listed(TEXT))},
            "reply": TEXT,
            "ack": SWITCH,
            "timeout_ms": MILLISECONDS,
            "max_replies": COUNT,
        },
    ),
    "Message": shape(
        {"seq": COUNT, "ts": MILLISECONDS, "subject": TEXT, "size": COUNT},
        {
            "text": TEXT,
            "base64": TEXT,
            "headers": listed(listed(TEXT)),
            "tag": TEXT,
            "node": TEXT,
            "meta": TEXT,
            "cut": SWITCH,
            "masked": SWITCH,
        },
    ),
    "Messages": shape(
        {
            "topic": TEXT,
            "records": listed(ref("Message")),
            "next_seq": either(COUNT, NULL),
            "scanned": COUNT,
            "first_seq": COUNT,
            "last_seq": COUNT,
        },
        {"performance": ref("Performance")},
    ),
    "ConsumerList": shape(
        {"consumers": listed(FREE), "total": COUNT}, {"topic": TEXT, "next_cursor": TEXT}
    ),
    "Health": shape({"status": TEXT}, {"version": TEXT, "uptime_ms": MILLISECONDS, "error": TEXT}),
}


def components() -> dict[str, Schema]:
    """Return every shape by name."""
    read_from = (
        *(bodies.DiffBody, bodies.DeleteBody, bodies.WatchBody, bodies.RouterBody),
        *(queues.ClaimBody, queues.AckBody, queues.NackBody, queues.ExtendBody),
        *(redrive.RedriveBody, bodies.BrowseBody, bodies.PauseBody, bodies.ResetBody),
    )
    _, requests = msgspec.json.schema_components(
        read_from, ref_template="#/components/schemas/{name}"
    )
    return dict(sorted({**_ANSWERS, **requests}.items()))
