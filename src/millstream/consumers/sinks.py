"""Where a consumer's pull requests and flow-control answers arrive."""

from typing import Protocol

from millstream.kernel._batch import Batch


class Served(Protocol):
    """What a consumer does with them."""

    def request(self, reply: bytes, body: bytes) -> None:
        """Take a pull request."""
        ...

    def flow_answered(self, subject: bytes, headers: bytes) -> None:
        """Go on: the client has seen everything up to the flow-control request."""
        ...

    def pump(self) -> None:
        """Deliver what can be delivered now."""
        ...


class Pulls:
    """The sink behind ``$JS.API.CONSUMER.MSG.NEXT.<stream>.<consumer>``."""

    def __init__(self, consumer: Served) -> None:
        self._consumer = consumer

    def deliver(self, batch: Batch) -> None:
        """Let every request of the batch stand in line, then serve the line."""
        for at in range(len(batch)):
            _, reply, _, payload, _ = batch.message(at)
            if reply:
                self._consumer.request(reply, payload)
        self._consumer.pump()


class FlowReplies:
    """The sink behind ``$JS.FC.<stream>.<consumer>.*``."""

    def __init__(self, consumer: Served) -> None:
        self._consumer = consumer

    def deliver(self, batch: Batch) -> None:
        """Open the window for every answer that is awaited."""
        for at in range(len(batch)):
            subject, _, headers, _, _ = batch.message(at)
            self._consumer.flow_answered(subject, headers)
