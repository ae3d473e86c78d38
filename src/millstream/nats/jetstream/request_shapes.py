"""What the requests of the JetStream API may say, with the names and types of the reference."""

from millstream.consumers.config_shape import CONSUMER_CONFIG
from millstream.streams.config.config_shape import PLACEMENT, STREAM_FIELDS
from millstream.wire.go_json import (
    BOOL,
    INT,
    STRING,
    STRINGS,
    UINT64,
    GoTime,
    Listing,
    Shape,
    Table,
    words,
)

STREAM_CONFIG = Shape("StreamConfigRequest", {**STREAM_FIELDS, "pedantic": BOOL})
STREAM_NAMES = Shape("JSApiStreamNamesRequest", {"offset": INT, "subject": STRING})
STREAM_LIST = Shape("JSApiStreamListRequest", {"offset": INT, "subject": STRING})
STREAM_INFO = Shape(
    "JSApiStreamInfoRequest", {"offset": INT, "deleted_details": BOOL, "subjects_filter": STRING}
)
PURGE = Shape("JSApiStreamPurgeRequest", {"seq": UINT64, "filter": STRING, "keep": UINT64})
GET_MESSAGE = Shape(
    "JSApiMsgGetRequest",
    {
        "seq": UINT64,
        "last_by_subj": STRING,
        "next_by_subj": STRING,
        "batch": INT,
        "max_bytes": INT,
        "start_time": GoTime(),
        "multi_last": STRINGS,
        "up_to_seq": UINT64,
        "up_to_time": GoTime(),
        "no_hdr": BOOL,
    },
)
DELETE_MESSAGE = Shape("JSApiMsgDeleteRequest", {"seq": UINT64, "no_erase": BOOL})
SNAPSHOT = Shape(
    "JSApiStreamSnapshotRequest",
    {
        "deliver_subject": STRING,
        "no_consumers": BOOL,
        "chunk_size": INT,
        "window_size": INT,
        "jsck": BOOL,
    },
)
_STATE = Shape(
    "StreamState",
    {
        "messages": UINT64,
        "bytes": UINT64,
        "first_seq": UINT64,
        "first_ts": GoTime(pointer=False),
        "last_seq": UINT64,
        "last_ts": GoTime(pointer=False),
        "num_subjects": INT,
        "subjects": Table(UINT64),
        "num_deleted": INT,
        "deleted": Listing(UINT64),
        "lost": Shape("LostStreamData", {"msgs": Listing(UINT64), "bytes": UINT64}, pointer=True),
        "consumer_count": INT,
    },
)
RESTORE = Shape(
    "JSApiStreamRestoreRequest",
    {"config": Shape("StreamConfig", STREAM_FIELDS), "state": _STATE},
)
CREATE_CONSUMER = Shape(
    "CreateConsumerRequest",
    {
        "stream_name": STRING,
        "config": CONSUMER_CONFIG,
        "action": words("create", "update", "", refusal="unknown consumer action: %s"),
        "pedantic": BOOL,
    },
)
CONSUMERS = Shape("JSApiConsumersRequest", {"offset": INT})
PAUSE = Shape("JSApiConsumerPauseRequest", {"pause_until": GoTime(pointer=False)})
UNPIN = Shape("JSApiConsumerUnpinRequest", {"group": STRING})
RESET = Shape("JSApiConsumerResetRequest", {"seq": UINT64})
STEP_DOWN = Shape("JSApiLeaderStepdownRequest", {"placement": PLACEMENT})
