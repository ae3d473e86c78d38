"""SocketRenderer: what followers find, as frames of a WebSocket."""

from functools import partial

import msgspec

from millstream.topics.audience.view import Render, Update
from millstream.topics.page.page import Page
from millstream.wire import websocket

WORTH_COMPRESSING = 1024  # below this a frame costs more time than bytes

_encode = msgspec.json.encode


class SocketRenderer:
    """The frames of a socket; those of all that compress, or do not, are the same."""

    is_personal = False

    def __init__(self, compressed: bool) -> None:
        self._compressed = compressed
        self.shared: Render = _COMPRESSED if compressed else _PLAIN

    def personal(self, update: Update) -> bytes:
        """Return what everybody is sent."""
        return update.plain

    def tombstone(self, name: str, page: Page, is_first: bool) -> bytes:
        """Return the frame of a loss."""
        assert page.tombstone is not None
        shown = page.tombstone.shown()
        del shown["missed_estimate"]
        return self._frame({"op": "tombstone", "topic": name, **shown})

    def records(self, name: str, before: int, page: Page) -> bytes:
        """Return the frame of some records."""
        return _records(self._compressed, name, before, page)

    def caught_up(self, name: str, page: Page) -> bytes:
        """Return the frame that ends them for now."""
        return self._frame({"op": "caught_up", "topic": name, "head_seq": page.head_seq})

    def stays_caught_up(self, page: Page) -> bool:
        """Say whether the page is the last: only one who was behind is told that it is not now."""
        return page.caught_up

    def deleted(self, name: str) -> bytes:
        """Return that a topic is gone."""
        told = {"op": "topic_deleted", "topic": name, "head_seq": 0, "reason": "deleted"}
        return self._frame(told)

    def _frame(self, message: dict[str, object]) -> bytes:
        return _encoded(self._compressed, _encode(message))


def _update(compressed: bool, name: str, before: int, page: Page) -> Update:
    return Update(page.next_from_seq, _records(compressed, name, before, page))


_PLAIN = partial(_update, False)
_COMPRESSED = partial(_update, True)


def _records(compressed: bool, name: str, from_seq: int, page: Page) -> bytes:
    text = b'{"op":"record","topic":%b,"from_seq":%d,"to_seq":%d,"head_seq":%d,"records":[%b]}' % (
        _encode(name),
        from_seq,
        page.next_from_seq,
        page.head_seq,
        page.records,
    )
    return _encoded(compressed, text)


def _encoded(compressed: bool, text: bytes) -> bytes:
    return websocket.encode(text, compressed and len(text) >= WORTH_COMPRESSING, text=True)
