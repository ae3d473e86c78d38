"""Searches by subject agree with a plain look at all records, whatever was appended and removed."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millstream.clock import ManualClock
from millstream.kernel._batch import Batch
from millstream.store.disk.files import OsFiles
from millstream.store.log.file_log import LogOptions
from millstream.store.log.memory_log import MemoryLog
from millstream.streams.reading.subject_index import SubjectIndex
from millstream.subjects.matcher import matcher

SUBJECTS = [b"a.1", b"a.2", b"b.1", b"b.2.c"]
FILTERS: list[list[str]] = [[], ["a.1"], ["a.*"], ["b.>"], ["a.1", "b.*"], ["zz"]]


class Agreement(RuleBasedStateMachine):
    """A log of small segments beside a dictionary of its records."""

    def __init__(self) -> None:
        super().__init__()
        self.posted: list = []
        options = LogOptions(segment_records=4)
        self.log = MemoryLog(OsFiles(), ManualClock(), self.posted.append, 1, options)
        self.index = SubjectIndex(self.log)
        self.selections = [(names, self.index.select(names)) for names in FILTERS]
        self.records: dict[int, bytes] = {}
        self.hidden: set[int] = set()
        self.staged: dict[int, bytes] = {}

    def settle(self) -> None:
        while self.posted:
            self.posted.pop(0)()

    @rule(subjects=st.lists(st.sampled_from(SUBJECTS), min_size=1, max_size=5), wait=st.booleans())
    def append(self, subjects: list[bytes], wait: bool) -> None:
        batch = Batch()
        for subject in subjects:
            batch.add(subject, b"", b"", b"x")
        first = self.log.append(batch, 0, len(subjects), 1, lambda error: None).first_seq
        self.staged |= {first + at: subject for at, subject in enumerate(subjects)}
        if not wait:
            self.commit()

    @rule()
    def commit(self) -> None:
        self.settle()
        self.records |= self.staged
        self.staged = {}

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.commit()
        if self.records:
            seq = data.draw(st.sampled_from(sorted(self.records)))
            self.log.delete([seq], lambda error: None)
            self.settle()
            del self.records[seq]
            self.hidden.discard(seq)
            self.index.hidden.reveal([seq])

    @rule(data=st.data())
    def hide(self, data: st.DataObject) -> None:
        if self.records:
            seq = data.draw(st.sampled_from(sorted(self.records)))
            self.index.hidden.hide([seq])
            self.hidden.add(seq)

    @rule()
    def reveal(self) -> None:
        self.index.hidden.reveal(self.hidden)
        self.hidden = set()

    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        self.commit()
        self.reveal()
        first = data.draw(st.integers(1, self.log.next_seq))
        self.log.trim(first, "cap")
        self.records = {seq: s for seq, s in self.records.items() if seq >= first}

    @invariant()
    def searches_agree(self) -> None:
        seen = {seq: s for seq, s in self.records.items() if seq not in self.hidden}
        for names, chosen in self.selections:
            match = matcher(names) or (lambda subject: True)
            wanted = [seq for seq in sorted(seen) if match(seen[seq])]
            assert list(self.index.seqs(chosen)) == wanted
            assert self.index.counts(chosen) == Counter(seen[seq] for seq in wanted)
            for start in (1, 3, 8):
                assert self.index.count(chosen, start) == sum(seq >= start for seq in wanted)
            last = {seen[seq]: seq for seq in wanted}
            assert self.index.last_seqs(chosen) == sorted(last.values())
            before = {seen[seq]: seq for seq in wanted if seq <= 5}
            assert self.index.last_seqs(chosen, up_to=5) == sorted(before.values())
            if not self.hidden:
                frames = self.index.read(chosen, 1, 2, 10**6)
                assert [frames.seq(at) for at in range(len(frames))] == wanted[: len(frames)]
                assert bool(len(frames)) == bool(wanted)

    @invariant()
    def the_newest_of_a_subject_is_read(self) -> None:
        seen = {seq: s for seq, s in self.records.items() if seq not in self.hidden}
        last = {seen[seq]: seq for seq in sorted(seen)}
        for name in SUBJECTS:
            frames = self.index.newest(name)
            assert (frames.seq(0) if frames is not None else None) == last.get(name)

    @invariant()
    def the_oldest_above_a_limit_are_named_and_hidden(self) -> None:
        seen = {seq: s for seq, s in self.records.items() if seq not in self.hidden}
        by_subject = {name: [s for s in sorted(seen) if seen[s] == name] for name in SUBJECTS}
        wanted = sorted(seq for seqs in by_subject.values() for seq in seqs[:-2])
        for subjects in (None, set(SUBJECTS)):
            assert self.index.crowd_out(subjects, 2) == wanted
            assert self.index.hidden.seqs.keys() >= set(wanted)
            assert self.index.crowd_out(subjects, 2) == []
            self.index.hidden.reveal(wanted)


TestAgreement = Agreement.TestCase
TestAgreement.settings = settings(max_examples=60, stateful_step_count=25)
