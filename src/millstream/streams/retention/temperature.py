"""Which streams' segments may move to the cold place, and when."""

from millstream.store.log.file_log import FileLog
from millstream.store.log.log import Log
from millstream.streams.config.config import StreamConfig


def tell_log(log: Log, config: StreamConfig) -> None:
    """Tell a log what its stream is called, and what of it has to stay here."""
    if isinstance(log, FileLog):
        log.name = config.name
        log.stays_hot = stays_hot(config)
        log.hot_ns = max(config.duplicate_window, 0)  # a start reads the message ids in there


def stays_hot(config: StreamConfig) -> bool:
    """Say whether a stream reads its old records for its own sake, also while it starts."""
    is_queue = config.metadata.get("millstream.type") == "queue"
    return (
        is_queue
        or config.retention != "limits"
        or config.allow_msg_ttl
        or config.allow_msg_counter
        or config.allow_msg_schedules
        or config.subject_delete_marker_ttl > 0
    )
