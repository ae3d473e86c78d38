"""Copies under way: what another stream republished into this one and is not committed yet.

Who published the original may have its ack already, and asks for the copy: a read waits for it.
"""

from collections.abc import Iterable

from millstream.streams.writing.run import Run


def copy_under_way(inflight: Iterable[Run], subject: bytes) -> Run | None:
    """Return the newest run that brings a copy under a subject, None when none is under way."""
    for run in reversed(list(inflight)):
        seq = run.last_of_subjects().get(subject)
        if seq is not None and run.future is None:
            return run if _is_ours(run, seq) else None
    return None


def _is_ours(run: Run, seq: int) -> bool:
    """Whether the server itself published an entry."""
    at = run.seqs.index(seq) if run.seqs is not None else seq - run.first_seq
    return run.batch.message(run.start + at)[4] == 0
