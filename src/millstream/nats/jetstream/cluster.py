"""Requests about replicas: a server on its own says that it has none."""

from typing import TYPE_CHECKING, Any

from millstream.nats.jetstream.errors import ApiError

if TYPE_CHECKING:
    from millstream.nats.jetstream.endpoint import JetStream


async def of_stream(js: "JetStream", body: bytes, stream: str) -> dict[str, Any]:
    """Refuse to move a stream's leader or peers: there is nowhere to move them to."""
    raise ApiError(503, 10010, "JetStream clustering support required")


async def of_consumer(js: "JetStream", body: bytes, stream: str, name: str) -> dict[str, Any]:
    """Refuse to move a consumer's leader."""
    raise ApiError(503, 10010, "JetStream clustering support required")
