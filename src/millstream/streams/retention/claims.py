"""Claims: which records somebody still needs, so that interest retention can drop the rest."""

from collections.abc import Callable, Iterable, Sequence

from millstream.subjects.matcher import matcher


class RecordClaim:
    """One holder's need: matching records from ``first`` on, but those it is done with."""

    __slots__ = ("_match", "done", "first")

    def __init__(self, filters: Sequence[str], first: int, done: Iterable[int]) -> None:
        self.first = first
        self.done = set(done)
        self._match: Callable[[bytes], bool] | None = matcher(filters)

    def covers(self, subject: bytes) -> bool:
        """Whether records of this subject concern the holder."""
        return self._match is None or self._match(subject)

    def covers_all_from(self, seq: int) -> bool:
        """Whether everything from ``seq`` on is needed, but for what the holder is done with."""
        return self._match is None and self.first <= seq

    def needs(self, seq: int) -> bool:
        """Whether a record of a subject that concerns the holder is still to be done with."""
        return seq >= self.first and seq not in self.done


class Claims:
    """Every holder's claim. Pure: the stream carries out what this decides."""

    def __init__(self) -> None:
        self._claims: dict[str, RecordClaim] = {}

    def __bool__(self) -> bool:
        return bool(self._claims)

    def put(self, holder: str, claim: RecordClaim) -> None:
        """Let a holder need records; a claim it had is replaced."""
        self._claims[holder] = claim

    def drop(self, holder: str) -> None:
        """Let a holder need nothing."""
        self._claims.pop(holder, None)

    def on(self, subject: bytes) -> list[RecordClaim]:
        """Return the claims that concern a subject."""
        return [claim for claim in self._claims.values() if claim.covers(subject)]

    def concern(self, subject: bytes) -> bool:
        """Whether anybody's claim does."""
        return any(claim.covers(subject) for claim in self._claims.values())

    def release(
        self, holder: str, seqs: Sequence[int], subject_of: Callable[[int], bytes | None]
    ) -> list[int]:
        """Let a holder be done with records; returns those that nobody needs any more."""
        others = [claim for name, claim in self._claims.items() if name != holder]
        if not others:
            return list(seqs)
        mine = self._claims.get(holder)
        free = []
        for seq in seqs:
            subject = subject_of(seq)
            if subject is None:
                continue
            if any(claim.needs(seq) and claim.covers(subject) for claim in others):
                if mine is not None:
                    mine.done.add(seq)
            else:
                free.append(seq)
        return free

    def unwanted(self, seqs: Sequence[int], subjects: Iterable[bytes]) -> list[int]:
        """Return which of these new records nobody waits for."""
        if any(claim.covers_all_from(seqs[0]) for claim in self._claims.values()):
            return []
        wanted: dict[bytes, bool] = {}
        found = []
        for seq, subject in zip(seqs, subjects, strict=True):
            if subject not in wanted:
                wanted[subject] = any(claim.needs(seq) for claim in self.on(subject))
            if not wanted[subject]:
                found.append(seq)
        return found

    def forget(self, seqs: Iterable[int]) -> None:
        """Forget records that are gone."""
        for claim in self._claims.values():
            if claim.done:
                claim.done.difference_update(seqs)

    def forget_below(self, seq: int) -> None:
        """Forget records that are gone from the old end."""
        for claim in self._claims.values():
            if claim.done:
                claim.done = {one for one in claim.done if one >= seq}
