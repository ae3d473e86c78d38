"""Loss: records that were gone before a consumer got them, to be told with the next delivery."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from millstream.store.log.log import LOSSES, Gap

if TYPE_CHECKING:
    from millstream.consumers.reading.cursor import CursorPage
    from millstream.streams.stream import Stream

Range = tuple[int, int]


class Loss:
    """The range from the first to the last record that a cursor had to pass by."""

    def __init__(self, stream: "Stream") -> None:
        self._stream = stream
        self._gap: Range | None = None
        self._is_sure = False  # else only others may have lost something

    def restore(self, gap: Range | None) -> None:
        """Begin with a loss that is still to be told, or with none."""
        self._gap, self._is_sure = gap, gap is not None

    @property
    def kept_gap(self) -> Range | None:
        """Return the loss that is to be told after a restart too: one that is known to be one."""
        return self._gap if self._is_sure else None

    def take_gap(self) -> Range | None:
        """Return the loss, once."""
        gap, self._gap, self._is_sure = self._gap, None, False
        return gap

    def note_gap(self, first: int, last: int, *, is_sure: bool) -> None:
        """Note that ``first..last`` was passed by."""
        self._gap = (self._gap[0] if self._gap else first, last)
        self._is_sure = self._is_sure or is_sure

    def note_damage(self, first: int, last: int) -> None:
        """Note what the disk lost of ``first..last``, which is about to be passed."""
        for gap in self._damage():
            if gap.first <= last and gap.last >= first:
                self.note_gap(max(gap.first, first), min(gap.last, last), is_sure=True)

    def before_damage(self, position: int, page: "CursorPage") -> "CursorPage":
        """Note damage before the first record, and end the page before damage within it."""
        self.note_damage(position, page.frames.seq(page.start) - 1)
        for gap in self._damage():
            for at in range(1, page.count):
                here = page.start + at
                if page.frames.seq(here - 1) < gap.first < page.frames.seq(here):
                    page = replace(page, count=at)
                    break
        return page

    def _damage(self) -> list[Gap]:
        return [gap for gap in self._stream.log.state().gaps if gap.reason in LOSSES]
