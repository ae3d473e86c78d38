"""The fields of a consumer's configuration as requests carry them, with the reference's types."""

from millstream.wire.go_json import (
    BOOL,
    DURATION,
    INT,
    STRING,
    STRINGS,
    UINT64,
    GoTime,
    Listing,
    Shape,
    Table,
    Word,
    words,
)

_STARTS = ("all", "last", "last_per_subject", "new", "by_start_sequence", "by_start_time")

CONSUMER_CONFIG = Shape(
    "ConsumerConfig",
    {
        "durable_name": STRING,
        "name": STRING,
        "description": STRING,
        "deliver_policy": Word(
            {**{word: word for word in _STARTS}, "undefined": "all"}, "can not unmarshal %s"
        ),
        "opt_start_seq": UINT64,
        "opt_start_time": GoTime(),
        "ack_policy": words("none", "all", "explicit", "flow_control"),
        "ack_wait": DURATION,
        "max_deliver": INT,
        "backoff": Listing(DURATION),
        "filter_subject": STRING,
        "filter_subjects": STRINGS,
        "replay_policy": words("instant", "original"),
        "rate_limit_bps": UINT64,
        "sample_freq": STRING,
        "max_waiting": INT,
        "max_ack_pending": INT,
        "flow_control": BOOL,
        "headers_only": BOOL,
        "max_batch": INT,
        "max_expires": DURATION,
        "max_bytes": INT,
        "deliver_subject": STRING,
        "deliver_group": STRING,
        "idle_heartbeat": DURATION,
        "inactive_threshold": DURATION,
        "num_replicas": INT,
        "mem_storage": BOOL,
        "direct": BOOL,
        "sourcing": BOOL,
        "metadata": Table(STRING),
        "pause_until": GoTime(),
        "priority_groups": STRINGS,
        "priority_policy": words(
            "none",
            "overflow",
            "pinned_client",
            "prioritized",
            refusal="unknown priority policy: %s",
        ),
        "priority_timeout": DURATION,
    },
)
