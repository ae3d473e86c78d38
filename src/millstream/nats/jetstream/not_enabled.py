"""NotEnabled: what an account without JetStream hears from the JetStream API."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from millstream.accounts.rights import text_of
from millstream.kernel._batch import Batch
from millstream.nats.jetstream.endpoint import PATTERNS, PREFIX, find_route

if TYPE_CHECKING:
    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest

_ERROR = {"code": 503, "err_code": 10039, "description": "JetStream not enabled for account"}


class NotEnabled:
    """Refuses every request, where silence would look like an outage.

    ``imported`` says of a subject whether the account takes it from another one, which answers.
    """

    def __init__(self, hub: "Hub", interest: "Interest", imported: Callable[[str], bool]) -> None:
        self._hub = hub
        self._interest = interest
        self._imported = imported
        self._handles = [interest.add_sink(PREFIX + pattern, self) for pattern in PATTERNS]

    def deliver(self, batch: Batch) -> None:
        """Answer requests that the API knows."""
        for at in range(len(batch)):
            subject, reply, _, _, _ = batch.message(at)
            found = find_route(text_of(subject[len(PREFIX) :]))
            if found is None or not reply or self._imported(text_of(subject)):
                continue
            kind = f"io.nats.jetstream.api.v1.{found[0].type}_response"
            answer = {"type": kind, "error": _ERROR, **found[0].failed}
            self._hub.publish(self._interest, reply, b"", b"", msgspec.json.encode(answer))

    def close(self) -> None:
        """Refuse nothing any more."""
        for handle in self._handles:
            self._interest.remove_sink(handle)
