"""A consumer's client that reads slowly is waited for: its outbox is never filled too far."""

from types import SimpleNamespace
from typing import Any

from millstream.clock import ManualClock
from millstream.consumers.config import ConsumerConfig
from millstream.consumers.dispatch import Dispatch
from millstream.consumers.push import PushDesk
from millstream.consumers.reading.cursor import CursorPage
from millstream.consumers.reading.feed import Feed, FeedParcel
from millstream.kernel._frames import Frames

SIZE = 200  # of each record, as clients count it


class Records(Feed):
    """One record at a time, without end."""

    def __init__(self) -> None:
        self.stream: Any = SimpleNamespace(name="S")
        self.name = "C"
        self.is_blocked = False

    def next(self, most: int, max_bytes: int) -> FeedParcel | None:
        return FeedParcel(CursorPage(Frames(b"", []), 0, 1), again=False)

    def put_back(self, parcel: FeedParcel) -> None:
        pass  # there is always one more


class Sent(Dispatch):
    """Counts what goes."""

    def __init__(self) -> None:
        self.count = 0

    def size(self, parcel: FeedParcel) -> int:
        return SIZE

    def send(self, route: bytes, parcel: FeedParcel, each: object = ()) -> int:
        self.count += 1
        return SIZE


def served(room: int) -> tuple[int, PushDesk]:
    """Return how many records go where there is so much room, and who sent them."""
    sent = Sent()
    outlet: Any = SimpleNamespace(
        is_bound=lambda subject, group: True,
        heard_for=lambda subject: 1 << 40,
        room=lambda subject: room - sent.count * (SIZE + 40),
    )
    config = ConsumerConfig(deliver_subject="d", ack_policy="none")
    desk = PushDesk(config, Records(), sent, outlet, ManualClock())
    assert desk.serve(10) == sent.count
    return sent.count, desk


def test_a_record_that_does_not_fit_waits_for_room() -> None:
    sent, desk = served(room=2 * (SIZE + 40) + 78)
    assert sent == 2
    assert desk.retry_at < 1e9


def test_as_many_go_as_were_asked_for_where_there_is_room() -> None:
    sent, _ = served(room=1 << 20)
    assert sent == 10
