"""Dispatch: sends parcels to their clients, and notes each delivery in the ledger."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream.clock import Clock
from millstream.consumers.ledger import Ledger
from millstream.consumers.outlet import Fields, Outlet, Routes, msg_size_growth
from millstream.consumers.reading.cursor import Cursor, CursorPage
from millstream.consumers.reading.feed import FeedParcel
from millstream.consumers.reading.pace import Pace
from millstream.kernel._acks import ack_replies, ack_sizes
from millstream.store.log.log import in_doubt

if TYPE_CHECKING:
    from millstream.consumers.advisories import Advisories
    from millstream.consumers.config import ConsumerConfig
    from millstream.streams.stream import Stream

HEAD_BYTES = 64  # of a message beyond what clients count: verb, sid, sizes, line ends


class Dispatch:
    """Hands records to the outlet under the subjects that clients answer on."""

    def __init__(
        self,
        name: str,
        config: "ConsumerConfig",
        stream: "Stream",
        cursor: Cursor,
        ledger: Ledger,
        pace: Pace,
        outlet: Outlet,
        advisories: "Advisories",
        clock: Clock,
    ) -> None:
        self._stream = stream
        self._cursor = cursor
        self._ledger = ledger
        self._pace = pace
        self._outlet = outlet
        self._advisories = advisories
        self._clock = clock
        self._ack_prefix = f"$JS.ACK.{stream.name}.{name}.".encode()
        self.take_on(config)

    def take_on(self, config: "ConsumerConfig") -> None:
        """Adopt a configuration."""
        self._tracks = config.ack_policy != "none"
        self._is_headers_only = config.headers_only

    def size(self, parcel: FeedParcel) -> int:
        """Return the size of a parcel's first record, as pull requests count it."""
        return self.sizes(parcel.part(0, 1))[0]

    def sizes(self, parcel: FeedParcel) -> list[int]:
        """Return the size of each record of a parcel that is next, as pull requests count it."""
        page = parcel.page
        sizes = ack_sizes(page.frames, page.start, self._ack_subjects(parcel)[0])
        if self._is_headers_only:
            sizes = list(map(int.__add__, sizes, self._growth(page)))
        return sizes

    def _growth(self, page: CursorPage) -> Iterator[int]:
        """Return how much larger records go than they are: without payload they tell its size."""
        for at in range(page.start, page.start + page.count):
            _, _, _, payload, headers, *_ = page.frames.record(at)
            yield msg_size_growth(len(headers), len(payload))

    def _ack_subjects(self, parcel: FeedParcel) -> tuple[list[bytes], int]:
        """Return where the records of a parcel that is next will be answered, and their size."""
        page, deliveries, left = parcel.page, 1, self._cursor.pending()
        if self._ledger.lanes.is_on:
            left += len(self._ledger.lanes.waiting)
        if parcel.again:
            known = self._ledger.pending.get(page.frames.seq(page.start))
            deliveries = known[1] + 1 if known is not None else 1
        else:
            left = max(left - 1, 0)
        return ack_replies(
            self._ack_prefix,
            page.frames,
            page.start,
            page.count,
            deliveries,
            self._ledger.delivered[0] + 1,
            left,
        )

    def fits(self, parcel: FeedParcel, room: int) -> bool:
        """Say whether an outbox with so much room takes a parcel: one record may be too large.

        Several are read to fit; a single one comes whatever its size.
        """
        return parcel.page.count > 1 or self.size(parcel) + HEAD_BYTES <= room

    def send(self, routes: Routes, parcel: FeedParcel, each: Fields = ()) -> int:
        """Deliver a parcel, each record to its route; returns its size as clients count it.

        Whatever the routes, the records leave in the parcel's order: two routes may lead to the
        same client.
        """
        replies, size, first = self._note(parcel)
        self._emit(routes, parcel.page, replies, first, each)
        return size

    def _note(self, parcel: FeedParcel) -> tuple[list[bytes], int, Fields]:
        """Note a delivery; returns the ack subjects, the size, and what the first has to tell."""
        now, page = self._clock.monotonic(), parcel.page
        frames, start, count = page.frames, page.start, page.count
        replies, size = self._ack_subjects(parcel)
        first: Fields = ()
        if parcel.again:
            self._ledger.deliver_again(frames.seq(start), now)
        else:
            first = self._loss()
            self._ledger.deliver(frames, start, count, now, track=self._tracks)
            self._cursor.advance(page)
        if self._is_headers_only:
            size += sum(self._growth(page))
        self._ledger.last_delivered_ns = self._clock.time_ns()
        if not self._pace.is_free:
            self._pace.sent(size, frames.record(start + count - 1)[1], now)
        return replies, size, first

    def _emit(
        self, routes: Routes, page: CursorPage, replies: list[bytes], first: Fields, each: Fields
    ) -> None:
        if self._is_headers_only:
            self._outlet.headers_of_records(routes, page, replies, first, each)
        elif first or each:
            self._outlet.marked_records(routes, page, replies, first, each)
        else:
            self._outlet.records(routes, page, replies)

    def _doubt(self, first: int, last: int) -> dict[str, int]:
        doubt = in_doubt(self._stream.log.state().gaps, first, last)
        return {"in_doubt": doubt} if doubt else {}

    def _loss(self) -> Fields:
        """Return the header that tells of records lost before this one, and tell everybody."""
        gap = self._cursor.loss.take_gap()
        if gap is None:
            return ()
        fields = {"first_seq": gap[0], "last_seq": gap[1], **self._doubt(*gap)}
        self._advisories.publish("GAP", "consumer_gap", **fields)
        return ((b"Millstream-Gap", b"%d-%d" % gap),)
