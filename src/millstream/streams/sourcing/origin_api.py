"""OriginApi: the API of an origin as it is called in an account, and where its answers come."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.kernel._batch import Batch
    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest


class _DeliverySink:
    def __init__(self, deliver: "Callable[[Batch], None]") -> None:
        self.deliver = deliver


class OriginApi:
    """Publishes and listens in one account, in the server's own name."""

    def __init__(self, hub: "Hub", interest: "Interest", prefix: str) -> None:
        self.prefix = prefix
        self._hub = hub
        self._interest = interest
        self._handles: list[int] = []

    def ask(self, operation: str, reply: bytes, headers: bytes, body: bytes) -> bool:
        """Send a request; False when nobody is there to take it."""
        return self.send(f"{self.prefix}.{operation}".encode(), reply, headers, body)

    def send(self, subject: bytes, reply: bytes, headers: bytes, body: bytes) -> bool:
        """Publish; False when nobody listens."""
        heard = self._hub.publish(self._interest, subject, reply, headers, body)
        self._hub.flush()
        return bool(heard)

    def listen(self, subject: bytes, deliver: "Callable[[Batch], None]") -> None:
        """Have what comes to a subject, until ``hush``."""
        self._handles.append(self._interest.add_sink(subject, _DeliverySink(deliver)))

    def hush(self) -> None:
        """Listen to nothing any more."""
        for handle in self._handles:
            self._interest.remove_sink(handle)
        self._handles = []
