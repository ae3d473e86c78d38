"""KeyGate: which records of a consumer may go because no other of their key is out."""

from typing import TYPE_CHECKING

from millstream.consumers.ledger import FOREVER, LAST
from millstream.consumers.reading.cursor import CursorPage
from millstream.delivery.record_key import shown_key

if TYPE_CHECKING:
    from millstream.consumers.ledger import Ledger
    from millstream.consumers.reading.cursor import Cursor
    from millstream.delivery.record_key import RecordKey
    from millstream.streams.stream import Stream

ONE_READ = 1024 * 1024  # bytes
STEP = 512  # records whose keys are read before others have a turn
MOST_SHOWN = 3


class KeyGate:
    """Reads ahead of keys that are taken, and parks their records in the ledger.

    What is parked is written down like a delivery, so that a restart knows it. Its keys are not:
    they are read again, ``learn`` by ``learn``, before anything goes.
    """

    def __init__(
        self, rule: "RecordKey", stream: "Stream", cursor: "Cursor", ledger: "Ledger"
    ) -> None:
        self.rule = rule
        self._stream = stream
        self._cursor = cursor
        self._ledger = ledger
        self._lanes = ledger.lanes
        self._lanes.switch(on=True)
        self._unknown: list[int] = []
        self.recall()

    # -- what was there before ---------------------------------------------------------------

    def recall(self) -> None:
        """Take what the ledger holds for what was there before."""
        found = self._ledger.pending.up_to(LAST)
        parked = [seq for seq in found if (self._ledger.pending.get(seq) or (0, 1, 0.0))[1] == 0]
        self._lanes.waiting.update(parked)
        delivered = sorted(set(found) - self._lanes.waiting, reverse=True)
        self._unknown = [*reversed(parked), *delivered]  # what was delivered has its key first

    def learn(self) -> bool:
        """Read keys of what is pending; whether all are known now."""
        for _ in range(min(STEP, len(self._unknown))):
            seq = self._unknown[-1]
            known = self._ledger.pending.get(seq)
            if known is not None and not self._lanes.knows(seq):
                self._learn_one(seq, deliveries=known[1])
            self._unknown.pop()
        return not self._unknown

    def _learn_one(self, seq: int, deliveries: int) -> None:
        frames = self._stream.read(seq, 1, ONE_READ)
        if not len(frames) or frames.first_seq != seq:
            self._ledger.gone([seq])  # deleted meanwhile: nobody has to answer for it
            return
        key = self.rule.of_frame(frames, 0)
        if deliveries:
            self._lanes.hold(seq, key)
        elif self._lanes.is_free(key):
            self._lanes.hold(seq, key)
            self._ledger.queue.add(seq)
        else:
            self._lanes.park(seq, key)

    # -- what comes --------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether no more records may be read ahead of keys that are taken."""
        return self._lanes.is_full

    def read(self, most: int, max_bytes: int) -> tuple[CursorPage | None, bool]:
        """Return the next records that may go together, and whether to look again for more.

        Those whose key is taken are parked on the way.
        """
        looked = 0
        while looked < STEP:
            page = self._cursor.read(min(most, STEP), max_bytes)
            if page is None:
                return None, False
            free = self._free_run(page)
            if free:
                return CursorPage(page.frames, page.start, free), True
            if self._lanes.is_full:
                return None, False
            looked += self._park_run(page)
        return None, True

    def _free_run(self, page: CursorPage) -> int:
        """Return how many records come first whose keys are free and all different."""
        offered: dict[int, bytes] = {}
        taken: set[bytes] = set()
        count = 0
        for at in range(page.start, page.start + page.count):
            seq, key = page.frames.seq(at), self.rule.of_frame(page.frames, at)
            if not self._lanes.is_free(key) or key in taken or seq in self._ledger.pending:
                break
            if key:
                taken.add(key)
                offered[seq] = key
            count += 1
        self._lanes.offer(offered)
        return count

    def _park_run(self, page: CursorPage) -> int:
        """Park the records that come first whose keys are taken; returns how many."""
        count, ledger = 0, self._ledger
        for at in range(page.start, page.start + page.count):
            seq, key = page.frames.seq(at), self.rule.of_frame(page.frames, at)
            if seq not in ledger.pending:
                if self._lanes.is_free(key) or self._lanes.is_full:
                    break
                self._lanes.park(seq, key)
                ledger.pending.put(seq, 0, 0, FOREVER)
            count += 1
        ledger.is_dirty = True
        self._cursor.advance(CursorPage(page.frames, page.start, count))
        return count

    def end(self) -> None:
        """Let everything that waits go, in whatever order."""
        for seq in sorted(self._lanes.waiting):
            self._ledger.queue.add(seq)
        self._lanes.switch(on=False)

    def shown(self) -> dict[str, object]:
        """Return how many records wait for their keys, and which keys most wait for."""
        return {
            "key": self.rule.text,
            "waiting": len(self._lanes.waiting),
            "most": self._lanes.most,
            "blocked": [
                {
                    "key": shown_key(each.key),
                    "seq": each.seq,
                    "waiting": each.waiting,
                    "deliveries": (self._ledger.pending.get(each.seq) or (0, 0, 0.0))[1],
                }
                for each in self._lanes.blocked(MOST_SHOWN)
            ],
        }
