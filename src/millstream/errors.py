"""The error tree: a class per thing that a caller treats differently.

Each class knows its code at both doors, and only the doors turn it into bytes:
``status`` and ``err_code`` are JetStream's pair, ``http_status`` and ``code`` are the
HTTP API's. ``detail`` becomes ``error.detail`` over HTTP.
"""

from collections.abc import Callable
from typing import Any, ClassVar


class MillstreamError(Exception):
    """Something a client did or met that has a name at every door."""

    status: ClassVar[int] = 500
    err_code: ClassVar[int] = 10051
    http_status: ClassVar[int] = 500
    code: ClassVar[str] = "internal"

    def __init__(self, message: str, detail: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail


class BadRequest(MillstreamError):
    """The request itself is malformed: sending it again cannot help."""

    status = 400
    err_code = 10003
    http_status = 400
    code = "invalid_request"


class StreamNotFound(MillstreamError):
    """No stream (topic) of that name exists in the account."""

    status = 404
    err_code = 10059
    http_status = 404
    code = "topic_not_found"

    def __init__(self, name: str, did_you_mean: str | None = None) -> None:
        detail: dict[str, Any] = {"topic": name}
        if did_you_mean is not None:
            detail["did_you_mean"] = did_you_mean
        super().__init__("stream not found", detail)
        self.name = name


class StreamExists(MillstreamError):
    """The name is taken by a stream with another configuration."""

    status = 400
    err_code = 10058
    http_status = 409
    code = "topic_exists_incompatible"

    def __init__(self, name: str) -> None:
        super().__init__(
            "stream name already in use with a different configuration", {"topic": name}
        )
        self.name = name


class SubjectsOverlap(MillstreamError):
    """Another stream already captures one of these subjects."""

    status = 400
    err_code = 10065
    http_status = 409
    code = "subjects_overlap"

    def __init__(self) -> None:
        super().__init__("subjects overlap with an existing stream")


class InvalidStreamConfig(MillstreamError):
    """A stream configuration that could never work."""

    status = 500
    err_code = 10052
    http_status = 400
    code = "invalid_request"


class TooMany(MillstreamError):
    """A request names more of something than the server takes; the message says how many."""

    status = 400
    err_code = 19000
    http_status = 400
    code = "too_many"

    @classmethod
    def check(cls, what: str, given: int, most: int) -> None:
        """Refuse a count above a limit."""
        if given > most:
            detail = {"limit": what, "max": most, "given": given}
            raise cls(
                f"too many {what}: the request has {given}, the server takes at most {most}", detail
            )


class TooManySubjects(TooMany):
    """A stream with more subjects than one may have."""

    err_code = 19001


class TooManyFilters(TooMany):
    """A consumer, or a request, with more filters than one may have."""

    err_code = 19002


class TooManySources(TooMany):
    """A stream with more sources, or more transforms of them, than one may have."""

    err_code = 19003


class ConsumerNotFound(MillstreamError):
    """No consumer of that name exists on the stream."""

    status = 404
    err_code = 10014
    http_status = 404
    code = "consumer_not_found"

    def __init__(self) -> None:
        super().__init__("consumer not found")


class ConnectionNotFound(MillstreamError):
    """There is no open connection of this number."""

    status = 404
    err_code = 10003
    http_status = 404
    code = "not_found"


class RecordNotFound(MillstreamError):
    """The sequence or subject asked for holds no record."""

    status = 404
    err_code = 10037
    http_status = 404
    code = "not_found"

    def __init__(self) -> None:
        super().__init__("no message found")


class RecordTooLarge(MillstreamError):
    """A record above the stream's or the server's limit."""

    status = 400
    err_code = 10054
    http_status = 400
    code = "record_too_large"

    def __init__(self) -> None:
        super().__init__("message size exceeds maximum allowed")


class StorageFull(MillstreamError):
    """The disk has no room: nothing was written, and writes resume when space returns."""

    status = 503
    err_code = 10077
    http_status = 507
    code = "insufficient_storage"


class ShardReadOnly(MillstreamError):
    """A write or sync failed on this shard, so it acknowledges nothing until a restart."""

    status = 503
    err_code = 10077
    http_status = 503
    code = "shard_read_only"


class StoreAway(MillstreamError):
    """The fleet's object store does not answer: writes are refused until it does."""

    status = 503
    err_code = 10008
    http_status = 503
    code = "store_away"


class ObjectsFailed(MillstreamError):
    """Where backups or cold history are kept does not answer as it must."""

    code = "objects_failed"


class BackupFailed(MillstreamError):
    """A backup cannot be taken or restored; the message says why and what to do."""

    code = "backup_failed"


class StorageUnusable(MillstreamError):
    """The data directory cannot be opened safely; the message says why and what to do."""

    status = 503
    err_code = 10077
    http_status = 503
    code = "storage_unusable"


class Unauthorized(MillstreamError):
    """No credential, or one that nobody holds; whoever guesses waits for the answer."""

    status = 401
    err_code = 10003
    http_status = 401
    code = "unauthorized"

    def __init__(self, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait  # seconds


class Forbidden(MillstreamError):
    """A known caller asked for what its scopes or names do not cover."""

    status = 403
    err_code = 10003
    http_status = 403
    code = "forbidden"


class Throttled(MillstreamError):
    """A cap of the server is reached; trying again later can help."""

    status = 429
    err_code = 10023
    http_status = 429
    code = "throttled"

    def __init__(self, limit: str, most: int) -> None:
        super().__init__(
            f"the server's {limit} of {most} is reached", {"limit": limit, "max": most}
        )


class ColdUnavailable(MillstreamError):
    """Records are in cold history, and the place where that is kept does not give them now."""

    status = 503
    err_code = 10077
    http_status = 503
    code = "cold_unavailable"


class NotHere(ColdUnavailable):
    """Records are in cold history and on their way here: whoever reads them tries again then.

    ``wait`` takes what to call on the loop once they are here, or with why they are not.
    """

    def __init__(
        self,
        next_seq: int,
        wait: Callable[[Callable[[MillstreamError | None], None]], None],
    ) -> None:
        super().__init__("the server is fetching these records from cold history: try again")
        self.next_seq = next_seq  # what is there without waiting may begin here
        self.wait = wait
