"""What can go wrong at the HTTP door only."""

from typing import Any

from millstream.errors import MillstreamError, StreamNotFound


class TopicNotFound(StreamNotFound):
    """No topic of that name; the answer names the closest one that the caller may see."""

    def __init__(self, name: str, did_you_mean: str | None = None) -> None:
        super().__init__(name, did_you_mean)
        self.message = f"no topic named {name}"


class NotFound(MillstreamError):
    """Nothing is known under this id."""

    http_status = 404
    code = "not_found"


class UnsupportedMediaType(MillstreamError):
    """The body is of a type that the route does not read."""

    http_status = 415
    code = "unsupported_media_type"


class NotAcceptable(MillstreamError):
    """The client accepts nothing that the route can send."""

    http_status = 406
    code = "not_acceptable"


class PayloadTooLarge(MillstreamError):
    """The body is above the limit, also once it is unpacked."""

    http_status = 413
    code = "payload_too_large"


class BatchTooLarge(MillstreamError):
    """More records in one write than a batch may hold."""

    http_status = 400
    code = "batch_too_large"


class RecordAboveLimit(MillstreamError):
    """A record whose data and meta are too large together."""

    http_status = 400
    code = "record_too_large"


class Pressed(MillstreamError):
    """The server is at its limit and its log has all that it takes: nothing was written."""

    status = 429
    err_code = 10023
    http_status = 429
    code = "throttled"

    def __init__(self) -> None:
        super().__init__("the server is overloaded; try again later", {"retry_after_ms": 1000})


class TopicNotEmpty(MillstreamError):
    """A topic was to be deleted only if it is empty."""

    http_status = 409
    code = "topic_not_empty"

    def __init__(self, name: str, count: int) -> None:
        detail: dict[str, Any] = {"topic": name, "count": count}
        super().__init__(f"{name} still holds {count} records", detail)


class NotAQueue(MillstreamError):
    """The topic is a log: nothing can be claimed from it."""

    http_status = 409
    code = "not_a_queue"

    def __init__(self, name: str) -> None:
        super().__init__(
            f'{name} is a log; only a topic created with "type":"queue" has jobs', {"topic": name}
        )
