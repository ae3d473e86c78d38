"""Where clients reach a consumer: pull requests, acks, flow control, and their subscriptions."""

from typing import TYPE_CHECKING, Protocol

from millstream.kernel._batch import Batch
from millstream.streams.config.extras import first_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.consumers.answers import Answers
    from millstream.consumers.config import ConsumerConfig
    from millstream.kernel._interest import Interest


class Served(Protocol):
    """What a consumer's pump does with them."""

    def request(self, reply: bytes, body: bytes) -> None:
        """Take a pull request."""
        ...

    def on_flow_reply(self, subject: bytes, acked_to: int | None) -> None:
        """Go on: the client has seen everything up to the flow-control request."""
        ...

    def on_listener(self, bound: bool) -> None:
        """Deliver to who subscribed to a push consumer's subject."""
        ...

    def run(self) -> None:
        """Deliver what can be delivered now."""
        ...


class Pulls:
    """The sink behind ``$JS.API.CONSUMER.MSG.NEXT.<stream>.<consumer>``."""

    def __init__(self, pump: Served) -> None:
        self._pump = pump

    def deliver(self, batch: Batch) -> None:
        """Let every request of the batch stand in line, then serve the line."""
        for at in range(len(batch)):
            _, reply, _, payload, _ = batch.message(at)
            if reply:
                self._pump.request(reply, payload)
        self._pump.run()


class FlowReplies:
    """The sink behind ``$JS.FC.<stream>.<consumer>.*``.

    Where these answers are the acks too, their headers say how far the client has come.
    """

    def __init__(self, pump: Served, *, are_acks: bool) -> None:
        self._pump = pump
        self._are_acks = are_acks

    def deliver(self, batch: Batch) -> None:
        """Open the window for every answer that is awaited."""
        for at in range(len(batch)):
            subject, _, headers, _, _ = batch.message(at)
            self._pump.on_flow_reply(subject, self._acked_to(headers))

    def _acked_to(self, headers: bytes) -> int | None:
        seen = first_values(headers).get(b"Nats-Last-Stream", b"") if self._are_acks else b""
        return int(seen) if seen.isdigit() else None


class ConsumerSinks:
    """The sinks of one consumer, from ``open`` to ``close``."""

    def __init__(self, api: str, pump: Served, answers: "Answers", interest: "Interest") -> None:
        """Take what is sent to ``api``, which is ``<stream>.<consumer>``."""
        self._api = api
        self._pump = pump
        self._answers = answers
        self._interest = interest
        self._handles: list[int] = []
        self._is_open = False
        self._unlisten: Callable[[], None] | None = None

    def open(self, config: "ConsumerConfig") -> None:
        """Take answers and requests from now on."""
        api = self._api
        sinks: list[tuple[str, object]] = [(f"$JS.API.CONSUMER.MSG.NEXT.{api}", Pulls(self._pump))]
        if config.ack_policy not in ("none", "flow_control"):
            sinks.append((f"$JS.ACK.{api}.>", self._answers))
        if config.flow_control:
            sinks.append(
                (
                    f"$JS.FC.{api}.*",
                    FlowReplies(self._pump, are_acks=config.ack_policy == "flow_control"),
                )
            )
        for pattern, sink in sinks:
            self._handles.append(self._interest.add_sink(pattern.encode(), sink))
        self._is_open = True
        self.listen(config)

    def listen(self, config: "ConsumerConfig") -> None:
        """Hear of those who subscribe to a push consumer's subject, and of their leaving."""
        self._stop_listening()
        if config.is_push and self._is_open:
            subject, group = config.deliver_subject.encode(), config.deliver_group.encode()
            self._unlisten = self._interest.watch(subject, group, self._pump.on_listener)

    def _stop_listening(self) -> None:
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None

    def close(self) -> None:
        """Take nothing any more."""
        self._is_open = False
        for handle in self._handles:
            self._interest.remove_sink(handle)
        self._stop_listening()
