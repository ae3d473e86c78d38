"""ConsumerClaim: which records a stream keeps because one consumer still needs them."""

from typing import TYPE_CHECKING

from millstream.streams.retention.claims import RecordClaim

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.consumers.ledger import Ledger
    from millstream.consumers.reading.cursor import Cursor
    from millstream.streams.stream import Stream


class ConsumerClaim:
    """``is_needed`` says whether the stream's retention depends on what consumers have done."""

    def __init__(self, name: str, stream: "Stream", cursor: "Cursor", ledger: "Ledger") -> None:
        self.is_needed = False
        self._name = name
        self._stream = stream
        self._cursor = cursor
        self._ledger = ledger

    def renew(self, filters: "Sequence[str]") -> None:
        """Tell the stream what the consumer still needs, where retention depends on that."""
        retention, start = self._stream.config.retention, self._ledger.floor[1] + 1
        self.is_needed = retention != "limits"
        if retention == "interest":
            done = self._cursor.passed(start, self._ledger.pending.get)
            claim = RecordClaim(tuple(filters), start, done)
            self._stream.removal.claims.put(self._name, claim)

    def let_go(self, seqs: list[int]) -> None:
        """Tell the stream that the consumer is done with these records."""
        if self.is_needed:
            self._stream.removal.release(self._name, seqs)

    def end(self) -> None:
        """Need nothing any more."""
        self._stream.removal.unclaim(self._name)
