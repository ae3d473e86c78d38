"""The fields of a stream's configuration as requests carry them, with the reference's types."""

from millstream.streams.config.source import MAX_SOURCES, MAX_TRANSFORMS
from millstream.wire.go_json import (
    BOOL,
    DURATION,
    INT,
    INT32,
    INT64,
    STRING,
    STRINGS,
    UINT64,
    Algorithm,
    GoTime,
    GoType,
    Listing,
    Shape,
    Table,
    Word,
    words,
)

_TRANSFORM = {"src": STRING, "dest": STRING}
_PLACEMENT = {"cluster": STRING, "tags": STRINGS, "preferred": STRING}
_SOURCE = Shape(
    "StreamSource",
    {
        "name": STRING,
        "opt_start_seq": UINT64,
        "opt_start_time": GoTime(),
        "filter_subject": STRING,
        "subject_transforms": Listing(
            Shape("SubjectTransformConfig", _TRANSFORM), most=MAX_TRANSFORMS
        ),
        "external": Shape("ExternalStream", {"api": STRING, "deliver": STRING}, pointer=True),
        "consumer": Shape(
            "StreamConsumerSource", {"name": STRING, "deliver_subject": STRING}, pointer=True
        ),
    },
    pointer=True,
)

PLACEMENT = Shape("Placement", _PLACEMENT, pointer=True)
STREAM_FIELDS: dict[str, GoType] = {
    "name": STRING,
    "description": STRING,
    "subjects": STRINGS,
    "retention": words("limits", "interest", "workqueue"),
    "max_consumers": INT,
    "max_msgs": INT64,
    "max_bytes": INT64,
    "max_age": DURATION,
    "max_msgs_per_subject": INT64,
    "max_msg_size": INT32,
    "discard": Word({"old": "old", "new": "new"}, "can not unmarshal %s", any_case=True),
    "storage": words("memory", "file"),
    "num_replicas": INT,
    "no_ack": BOOL,
    "duplicate_window": DURATION,
    "placement": PLACEMENT,
    "mirror": _SOURCE,
    "sources": Listing(_SOURCE, "*server.StreamSource", most=MAX_SOURCES),
    "compression": Algorithm(("s2", "none"), "unknown compression algorithm"),
    "first_seq": UINT64,
    "subject_transform": Shape("SubjectTransformConfig", _TRANSFORM, pointer=True),
    "republish": Shape(
        "RePublish", {"src": STRING, "dest": STRING, "headers_only": BOOL}, pointer=True
    ),
    "allow_direct": BOOL,
    "mirror_direct": BOOL,
    "discard_new_per_subject": BOOL,
    "sealed": BOOL,
    "deny_delete": BOOL,
    "deny_purge": BOOL,
    "allow_rollup_hdrs": BOOL,
    "consumer_limits": Shape(
        "StreamConsumerLimits", {"inactive_threshold": DURATION, "max_ack_pending": INT}
    ),
    "allow_msg_ttl": BOOL,
    "subject_delete_marker_ttl": DURATION,
    "allow_msg_counter": BOOL,
    "allow_atomic": BOOL,
    "allow_msg_schedules": BOOL,
    "persist_mode": words("", "default", "async"),
    "allow_batched": BOOL,
    "metadata": Table(STRING),
}
