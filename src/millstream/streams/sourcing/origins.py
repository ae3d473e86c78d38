"""Origins: which stream a mirror or source means at present, and the way to its records."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from millstream.delivery.timers import Timers
from millstream.streams.config.source import Source
from millstream.streams.sourcing.near_origin import NearOrigin
from millstream.streams.sourcing.origin import Origin
from millstream.streams.sourcing.origin_consumers import OriginConsumer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest
    from millstream.streams.sourcing.consumed_origin import ConsumedOrigin
    from millstream.streams.sourcing.deliveries import Deliveries
    from millstream.streams.stream import Stream

_API = "$JS.API"


class Whereabouts(NamedTuple):
    """Where a source's stream is: in this server, or to be asked for over subjects."""

    stream: "Stream | None" = None
    is_elsewhere: bool = False


class Requests(NamedTuple):
    """What is needed to ask an API: the hub, and the subjects of each account."""

    hub: "Hub"
    interests: "Mapping[str, Interest]"
    timers: Timers

    def deliveries(self, account: str, api: str, consumer: OriginConsumer) -> "Deliveries":
        """Return what a consumer brings, as it is asked for by somebody in an account."""
        # A start reads neither where all origins are near, as they mostly are.
        from millstream.streams.sourcing.deliveries import Deliveries
        from millstream.streams.sourcing.origin_api import OriginApi

        return Deliveries(OriginApi(self.hub, self.interests[account], api), self.timers, consumer)


class Origins:
    """Looks for the origin of one mirror or source."""

    def __init__(
        self,
        source: Source,
        holder: tuple[str, str],
        find: Callable[[], Whereabouts],
        requests: Requests | None,
        consumer: Callable[[], OriginConsumer],
    ) -> None:
        """``holder`` is the account and stream that follows; ``consumer`` makes what brings

        records that cannot be read in place.
        """
        self._source = source
        self._holder = holder
        self._find = find
        self._requests = requests
        self._consumer = consumer
        self._found = Whereabouts()

    def changed(self) -> bool:
        """Look again; say whether another stream is meant now, or none any more."""
        before, self._found = self._found, self._find()
        return (
            self._found.stream is not before.stream
            or self._found.is_elsewhere != before.is_elsewhere
        )

    def open(self) -> Origin | None:
        """Return the way to what was found, None when there is nothing."""
        stream, is_elsewhere = self._found
        requests, source = self._requests, self._source
        if is_elsewhere and requests is not None and source.external is not None:
            open_deliveries = partial(requests.deliveries, self._holder[0])
            api = source.external.api.rstrip(".") or _API
            return _consumed(open_deliveries(api, self._consumer()), None)
        if stream is None:
            return None
        if source.consumer is not None and requests is not None:
            deliveries = requests.deliveries(stream.account, _API, self._consumer())
            return _consumed(deliveries, stream)
        name = "\0".join(("\0source", *self._holder, *source.identity))
        return NearOrigin(stream, source, name)


def _consumed(deliveries: "Deliveries", stream: "Stream | None") -> "ConsumedOrigin":
    from millstream.streams.sourcing.consumed_origin import ConsumedOrigin

    return ConsumedOrigin(deliveries, stream)
