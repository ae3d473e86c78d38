"""Advisories: what one consumer publishes about itself for those who watch over it."""

from typing import TYPE_CHECKING, Any

from millstream.streams.config.times import ZERO_TIME

if TYPE_CHECKING:
    from millstream.consumers.ledger import GiveUp
    from millstream.consumers.outlet import Outlet


class Advisories:
    """Publishes under ``$JS.EVENT``, each with the names of the stream and the consumer."""

    def __init__(self, stream: str, consumer: str, outlet: "Outlet") -> None:
        self._place = f"{stream}.{consumer}"
        self._about = {"stream": stream, "consumer": consumer}
        self._outlet = outlet

    def publish(self, kind: str, type_name: str, **fields: Any) -> None:
        """Publish an advisory of this kind."""
        subject = f"$JS.EVENT.ADVISORY.CONSUMER.{kind}.{self._place}"
        self._outlet.event(subject, f"advisory.v1.{type_name}", **self._about, **fields)

    def ack_metric(self, **fields: Any) -> None:
        """Publish how long a sampled ack took."""
        subject = f"$JS.EVENT.METRIC.CONSUMER.ACK.{self._place}"
        self._outlet.event(subject, "metric.v1.consumer_ack", **self._about, **fields)

    def max_deliveries(self, end: "GiveUp") -> None:
        """Report a record that was delivered as often as allowed and never answered."""
        fields = {"stream_seq": end.seq, "deliveries": end.deliveries}
        self.publish("MAX_DELIVERIES", "max_deliver", **fields)

    def terminated(self, **fields: Any) -> None:
        """Report a delivery that ends without an ack."""
        self.publish("MSG_TERMINATED", "terminated", **fields)

    def pause(self, until: str, *, is_paused: bool) -> None:
        """Report whether deliveries are stopped, and until when."""
        fields = {"paused": is_paused, "pause_until": until or ZERO_TIME}
        self.publish("PAUSE", "consumer_pause", **fields)

    def deleted(self) -> None:
        """Report that the consumer goes without having been asked to."""
        self.publish("DELETED", "consumer_action", action="delete")
