"""EventRenderer: what followers find, as server-sent events that carry the id to resume from."""

import msgspec

from millstream.http.response import chunk
from millstream.store.log.log import LOSSES
from millstream.topics.audience.view import Render, Update
from millstream.topics.page.page import Page
from millstream.topics.watch.session import WatchSession, event_id

_encode = msgspec.json.encode


class EventRenderer:
    """The events of one session; an event's id names all its topics."""

    def __init__(self, session: WatchSession) -> None:
        self._session = session
        self.is_personal = len(session.positions) > 1
        self.shared: Render = render_update

    def personal(self, update: Update) -> bytes:
        """Return an update with the id of this session."""
        if not self.is_personal:
            return update.plain
        return _update_events(self._session.event_id(), update.records, update.caught_up)

    def tombstone(self, name: str, page: Page, is_first: bool) -> bytes:
        """Return the event of a loss."""
        return self.event(b"tombstone", _tombstone(name, page, is_first))

    def records(self, name: str, before: int, page: Page) -> bytes:
        """Return the event of some records."""
        return self.event(b"record", _records(name, before, page))

    def caught_up(self, name: str, page: Page) -> bytes:
        """Return the event that ends them for now."""
        return self.event(b"caught-up", _caught_up(name, page))

    def stays_caught_up(self, page: Page) -> bool:
        """Say whether there were no records: behind each of them comes another caught-up."""
        return not page.count

    def throttled(self, name: str) -> bytes:
        """Return what a client hears of a topic that is not pushed now; it can still be read."""
        text = f"{name} is paused while the server is overloaded; its records can be read by diff"
        told = {"code": "throttled", "message": text, "topic": name, "retry_after_ms": 1000}
        return self.event(b"error", _encode(told))

    def deleted(self, name: str) -> bytes:
        """Return that a topic is gone."""
        told = {"topic": name, "head_seq": 0, "reason": "deleted"}
        return self.event(b"topic-deleted", _encode(told))

    def event(self, kind: bytes, data: bytes) -> bytes:
        """Return one event of the stream."""
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (self._session.event_id(), kind, data)


def render_update(name: str, before: int, page: Page) -> Update:
    """Return what all sessions of this topic alone are sent, and what others make theirs from."""
    records, caught_up = _records(name, before, page), _caught_up(name, page)
    plain = _update_events(event_id({name: page.next_from_seq}), records, caught_up)
    return Update(page.next_from_seq, plain, chunk(plain), records, caught_up)


def _update_events(own_id: bytes, records: bytes, caught_up: bytes) -> bytes:
    return b"id: %b\nevent: record\ndata: %b\n\nid: %b\nevent: caught-up\ndata: %b\n\n" % (
        own_id,
        records,
        own_id,
        caught_up,
    )


def _caught_up(name: str, page: Page) -> bytes:
    return _encode({"topic": name, "head_seq": page.head_seq})


def _records(name: str, from_seq: int, page: Page) -> bytes:
    return b'{"topic":%b,"from_seq":%d,"head_seq":%d,"records":[%b],"to_seq":%d}' % (
        _encode(name),
        from_seq,
        page.head_seq,
        page.records,
        page.next_from_seq,
    )


def _tombstone(name: str, page: Page, is_first: bool) -> bytes:
    lost = page.tombstone
    assert lost is not None
    is_aged = lost.reason not in LOSSES  # what the disk lost was not too old for anybody
    return _encode(
        {
            "topic": name,
            "reason": "from_seq_too_old" if is_first and is_aged else lost.reason,
            "gap_from": lost.gap_from,
            "gap_to": lost.gap_to,
            "earliest_seq": lost.earliest_seq,
            "head_seq": lost.head_seq,
            **lost.doubt,
        }
    )
