"""A consumer's client that reads slowly is waited for: its outbox is never filled too far."""

from types import SimpleNamespace
from typing import Any

from millstream.clock import ManualClock
from millstream.consumers.config import ConsumerConfig
from millstream.consumers.cursor import CursorPage
from millstream.consumers.feed import Feed, FeedParcel
from millstream.consumers.push import PushDesk
from millstream.kernel._frames import Frames

SIZE = 200  # of each record, as clients count it


class Records(Feed):
    """One record at a time, without end."""

    def __init__(self) -> None:
        self.stream: Any = SimpleNamespace(name="S")
        self.name = "C"
        self.is_blocked = False
        self.sent = 0

    def next(self, most: int, max_bytes: int) -> FeedParcel | None:
        return FeedParcel(CursorPage(Frames(b"", []), 0, 1), again=False)

    def put_back(self, parcel: FeedParcel) -> None:
        pass  # there is always one more

    def size(self, parcel: FeedParcel) -> int:
        return SIZE

    def send(self, route: bytes, parcel: FeedParcel, each: object = ()) -> int:
        self.sent += 1
        return SIZE


def served(room: int) -> tuple[int, PushDesk]:
    """Return how many records go where there is so much room, and who sent them."""
    feed = Records()
    outlet: Any = SimpleNamespace(
        is_bound=lambda subject, group: True,
        heard_for=lambda subject: 1 << 40,
        room=lambda subject: room - feed.sent * (SIZE + 40),
    )
    config = ConsumerConfig(deliver_subject="d", ack_policy="none")
    desk = PushDesk(config, feed, outlet, ManualClock())
    assert desk.serve(10) == feed.sent
    return feed.sent, desk


def test_a_record_that_does_not_fit_waits_for_room() -> None:
    sent, desk = served(room=2 * (SIZE + 40) + 78)
    assert sent == 2
    assert desk.retry_at < 1e9


def test_as_many_go_as_were_asked_for_where_there_is_room() -> None:
    sent, _ = served(room=1 << 20)
    assert sent == 10
