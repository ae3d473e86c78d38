"""Views: a stream as somebody sees it who may read only some of its subjects."""

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.streams.reading.subject_index import Selection

if TYPE_CHECKING:
    from millstream.kernel._index import SubjectTable
    from millstream.streams.stream import Stream

MOST_KEPT = 64

Sees = Callable[[bytes], bool]


class View(Selection):
    """The subjects that ``sees`` lets pass; each is asked about once."""

    def __init__(self, table: "SubjectTable", sees: Sees) -> None:
        super().__init__(table, ())
        self._match = sees
        self._ids = b""


class Views:
    """The views of late, so that a range after range costs no look at every subject again.

    What sees alike must be equal and have one hash.
    """

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[int, Sees], View] = OrderedDict()

    def of(self, stream: "Stream", sees: Sees | None) -> View | None:
        """Return the view of a stream, None for one who sees everything."""
        if sees is None:
            return None
        key = (stream.incarnation, sees)
        view = self._kept.get(key)
        if view is None:
            view = self._kept[key] = View(stream.log.subjects, sees)
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return view
