"""DomainGate: the same API under the server's domain, ``$JS.<domain>.API.>``."""

from typing import TYPE_CHECKING

from millstream.kernel._batch import Batch
from millstream.wire.headers import encode_headers

if TYPE_CHECKING:
    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest

_BUCKETS = (b"$KV.", b"$OBJ.")  # these stand beside the API, and have its prefix in other domains
_NO_RESPONDERS = encode_headers((), b"503")


class DomainGate:
    """Sends each request on to the name it has without the domain."""

    def __init__(self, domain: str, hub: "Hub", interest: "Interest") -> None:
        self._prefix = f"$JS.{domain}.API.".encode()
        self._hub = hub
        self._interest = interest

    @property
    def pattern(self) -> bytes:
        """Return what to listen on."""
        return self._prefix + b">"

    def deliver(self, batch: Batch) -> None:
        """Send every request on; where nobody listens, say so as a direct request would."""
        for at in range(len(batch)):
            subject, reply, headers, payload, origin = batch.message(at)
            plain = subject[len(self._prefix) :]
            if not plain.startswith(_BUCKETS):
                plain = b"$JS.API." + plain
            if self._interest.has_interest(plain):
                self._hub.publish(self._interest, plain, reply, headers, payload, origin=origin)
            elif reply:
                self._hub.publish(self._interest, reply, b"", _NO_RESPONDERS, b"")
