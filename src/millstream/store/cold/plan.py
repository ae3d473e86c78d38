"""What of a log any reader of tables may read at the cold place by itself."""

from collections.abc import Mapping

import msgspec

from millstream.store.cold.manifest import ColdFile, folder
from millstream.store.log.file_log import FileLog


class ColdPlan(msgspec.Struct, frozen=True):
    """A Parquet file that any reader of tables may read."""

    path: str
    base_seq: int
    last_seq: int


def cold_plan(
    owner: FileLog, known: Mapping[int, ColdFile], place: str | None
) -> tuple[list[ColdPlan], list[tuple[int, int]]]:
    """Return the twins of a log's oldest segments, without a hole, and what in them is gone."""
    found = list[ColdPlan]()
    for segment in owner.segments:
        file = known.get(segment.base_seq) if segment.cold is not None else None
        if file is None or file.parquet is None or place is None:
            break
        if not file.parquet.is_vouched_for:
            break
        path = f"{place.rstrip('/')}/{folder(owner.log_id)}/{file.parquet.name}"
        found.append(ColdPlan(path, file.base_seq, file.last_seq))
    last = found[-1].last_seq if found else 0
    trimmed = [(1, owner.first_kept - 1)] if owner.first_kept > 1 else []
    gone = [(a, min(b, last)) for a, b in owner.deleted if a <= last]
    lost = [(g.first, min(g.last, last)) for g in owner.gaps if g.first <= last]
    return found, (trimmed + gone + lost if found else [])
