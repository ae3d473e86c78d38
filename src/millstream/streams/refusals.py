"""Why a stream turns a write or a removal away."""

from millstream.errors import MillstreamError
from millstream.store.log.log import LogState
from millstream.streams.config.config import StreamConfig


class StreamSealed(MillstreamError):
    """A sealed stream takes no writes and loses no records."""

    status = 400
    err_code = 10109
    http_status = 409
    code = "stream_sealed"

    def __init__(self) -> None:
        super().__init__("invalid operation on sealed stream")


class MirrorWritten(MillstreamError):
    """A mirror holds what its origin holds, and nothing else."""

    status = 400
    err_code = 10034
    http_status = 409
    code = "operation_denied"

    def __init__(self) -> None:
        super().__init__("a mirror takes no records but those of its origin")


class StreamFull(MillstreamError):
    """The stream refuses new records rather than drop old ones."""

    status = 503
    err_code = 10077
    http_status = 422
    code = "topic_full"

    def __init__(self, why: str, config: StreamConfig, state: LogState) -> None:
        topic = config.to_topic()
        detail = {
            "topic": config.name,
            "cap_records": topic["cap_records"],
            "cap_bytes": topic["cap_bytes"],
            "head_seq": state.last_seq,
            "earliest_seq": state.first_seq,
        }
        super().__init__(why, detail)


class AccountLimit(MillstreamError):
    """The account has as much as it may have; its operator sets how much that is."""

    http_status = 429
    code = "throttled"

    def __init__(
        self, status: int, err_code: int, message: str, limit: str, most: int | None = None
    ) -> None:
        detail = {"limit": limit} if most is None else {"limit": limit, "max": most}
        super().__init__(message, detail)
        self.status = status  # type: ignore[misc]
        self.err_code = err_code  # type: ignore[misc]


class OperationDenied(MillstreamError):
    """The stream's configuration forbids deleting or purging."""

    status = 500
    http_status = 409
    code = "operation_denied"

    def __init__(self, err_code: int, why: str) -> None:
        super().__init__(why)
        self.err_code = err_code  # type: ignore[misc]
