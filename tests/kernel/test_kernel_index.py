import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millstream.kernel import _frames
from millstream.kernel._batch import Batch
from millstream.kernel._index import SegmentIndex, SubjectTable, id_set
from millstream.kernel.reference import index as reference

subjects = st.sampled_from([b"", b"a", b"b", b"a.b.c.d.e", b"a.b.c.d.f"])
GOLDEN = bytes.fromhex("001000000200000000002a36fe9c971700000000050000000100020001000200")


def of(
    base_seq: int, *seqs: int, subject: Callable[[int], bytes] = lambda seq: b"s"
) -> SegmentIndex:
    index = SegmentIndex(base_seq, SubjectTable())
    for seq in seqs:
        index.append(100 * seq, seq, 10 * seq, subject(seq), 5, 0, 0, 0, 0)
    return index


def unpacked(packed: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(packed) // 4}I", packed))


def test_an_entry_has_exactly_these_bytes() -> None:
    index = SegmentIndex(40, SubjectTable())
    index.append(4096, 42, 1_700_000_000_000_000_000, b"orders.eu", 5, 1, 2, 1, 2)
    assert index.tobytes() == GOLDEN
    assert index.frame_len(0) == 81
    page = Path(__file__).parents[2] / "docs" / "reference" / "storage-format.md"
    assert GOLDEN.hex() in page.read_text()


class IndexAgreement(RuleBasedStateMachine):
    """Any sequence of changes leaves the compiled index and the plain one alike."""

    def __init__(self) -> None:
        super().__init__()
        self.subjects = SubjectTable()
        self.index = SegmentIndex(5, self.subjects)
        self.plain = reference.Index(5)
        self.offset = 0
        self.seq = 4
        self.ts_ns = 0

    @rule(
        gap=st.sampled_from([0, 0, 0, 1, 7]),
        late=st.integers(0, 2),
        subject=subjects,
        lengths=st.tuples(*[st.integers(0, 9)] * 5),
        deleted=st.sampled_from([False, False, True]),
    )
    def append(
        self,
        gap: int,
        late: int,
        subject: bytes,
        lengths: tuple[int, int, int, int, int],
        deleted: bool,
    ) -> None:
        self.seq += 1 + gap
        self.ts_ns += late
        self.index.append(self.offset, self.seq, self.ts_ns, subject, *lengths, int(deleted))
        self.plain.entries.append(
            reference.Entry(self.offset, self.seq, self.ts_ns, subject, lengths, deleted)
        )
        self.offset += self.index.frame_len(len(self.index) - 1)

    @precondition(lambda self: self.plain.entries)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        i = data.draw(st.integers(0, len(self.plain.entries) - 1))
        assert self.index.delete(i) is not self.plain.entries[i].deleted
        self.plain.entries[i].deleted = True

    @rule(seqs=st.lists(st.integers(0, 60), max_size=8))
    def delete_all(self, seqs: list[int]) -> None:
        here = {entry.seq: entry for entry in self.plain.entries}
        ids = self.index.live_ids(seqs)
        assert [known >= 0 for known in ids] == [
            seq in here and not here[seq].deleted for seq in seqs
        ]
        ends, size, others = [], 0, []
        for seq, known in zip(seqs, ids, strict=True):
            entry = here.get(seq)
            if known >= 0:
                assert self.subjects.subject(known) == here[seq].subject
            if entry is None or entry.deleted:
                others.append(seq)
                continue
            entry.deleted = True
            ends.append(entry.offset + entry.frame_len)
            size += entry.frame_len
        assert self.index.delete_all(seqs) == (ends, size, others)

    @rule(chosen=st.sets(subjects), most=st.integers(1, 3), up_to=st.integers(0, 60))
    def crowded(self, chosen: set[bytes], most: int, up_to: int) -> None:
        oldest, unsure = self.subjects.crowded(chosen, most, up_to)
        for subject in chosen:
            live = self.plain.live(subject)
            if len(live) <= most:
                assert subject not in unsure
            elif subject not in unsure:
                assert oldest[self.subjects.find(subject)] == live[0]
                assert len(live) == most + 1
                assert live[-1] <= up_to
        assert len(oldest) == sum(len(self.plain.live(s)) > most for s in chosen - set(unsure))

    @rule(seq=st.integers(0, 60))
    def delete_below(self, seq: int) -> None:
        dying = [e for e in self.plain.entries if e.seq < seq and not e.deleted]
        assert self.index.delete_below(seq) == (len(dying), sum(e.frame_len for e in dying))
        for entry in dying:
            entry.deleted = True

    @rule(most=st.integers(0, 400), start=st.integers(0, 99), drop=st.booleans())
    def compact(self, most: int, start: int, drop: bool) -> None:
        assert self.index.runs(most, drop) == self.plain.runs(most, drop)
        self.offset = self.plain.compact(start, drop)
        assert self.index.compact(start) == self.offset

    @rule(start=st.integers(0, 20), stop=st.integers(0, 20))
    def tags(self, start: int, stop: int) -> None:
        places = self.plain.tag_places(start, stop)
        packed = unpacked(self.index.tag_places(start, stop))
        assert packed == [number for place in places for number in place]
        assert self.index.data_bytes(start, stop) == self.plain.data_bytes(start, stop)

    @rule(count=st.integers(0, 20))
    def truncate(self, count: int) -> None:
        self.index.truncate(count)
        del self.plain.entries[count:]
        self.seq = self.plain.entries[-1].seq if self.plain.entries else 4

    @rule(
        i=st.integers(0, 20),
        records=st.integers(0, 6),
        size=st.integers(0, 400),
        chosen=st.none() | st.sets(subjects),
    )
    def read(self, i: int, records: int, size: int, chosen: set[bytes] | None) -> None:
        ids = None
        if chosen is not None:
            known = [self.subjects.find(subject) for subject in chosen]
            ids = id_set([n for n in known if n >= 0], self.subjects.bound)
        i = min(i, len(self.plain.entries))
        packed, on = self.index.offsets_from(i, records, size, ids=ids)
        assert (unpacked(packed), on) == self.plain.offsets_from(i, records, size, chosen)
        assert self.index.next_live(i, ids) == self.plain.next_live(i, chosen)
        newest, unsure = self.subjects.last_seqs(ids, self.seq - 2)
        for subject in chosen if chosen is not None else self.known():
            live = self.plain.live(subject)
            sure = self.subjects.find(subject) not in unsure
            assert (live[-1] in newest) == sure if live else sure
        assert len(newest) + len(unsure) <= len(self.subjects)
        wanted = sum(self.plain.wanted(n, chosen) for n in range(i, len(self.plain.entries)))
        assert self.index.count_live(i, ids=ids) == wanted

    @invariant()
    def entries_are_found_by_sequence_and_time(self) -> None:
        for seq in range(self.seq + 3):
            assert self.index.position(seq) == self.plain.position(seq)
        for ts_ns in range(self.ts_ns + 2):
            assert self.index.seek_time(ts_ns) == self.plain.seek_time(ts_ns)

    def known(self) -> set[bytes]:
        return {entry.subject for entry in self.plain.entries}

    @invariant()
    def counts_are_right(self) -> None:
        live = [entry for entry in self.plain.entries if not entry.deleted]
        assert (len(self.index), self.index.live) == (len(self.plain.entries), len(live))
        assert self.index.live_bytes() == sum(entry.frame_len for entry in live)

    @invariant()
    def subjects_know_their_records(self) -> None:
        here = {entry.subject for entry in self.plain.entries}
        assert {self.subjects.subject(n) for n in self.subjects.ids()} == here
        assert len(self.subjects) == len(here)
        assert self.subjects.living == sum(bool(self.plain.live(subject)) for subject in here)
        assert self.subjects.headed == self.plain.headed
        for subject in here:
            self.check_subject(self.subjects.find(subject), self.plain.live(subject))

    def check_subject(self, subject_id: int, live: list[int]) -> None:
        first, last = (live[0], live[-1]) if live else (0, 0)
        first_is_bound, last_is_bound = self.subjects.stale(subject_id)
        assert self.subjects.count(subject_id) == len(live)
        assert self.subjects.first_seq(subject_id) <= first
        assert self.subjects.last_seq(subject_id) >= last
        assert first_is_bound or self.subjects.first_seq(subject_id) == first
        assert last_is_bound or self.subjects.last_seq(subject_id) == last
        for up_to in (last, max(last - 1, 0)):
            known = 0 if last_is_bound or last > up_to else last
            assert self.subjects.newest(subject_id, up_to) == known

    @invariant()
    def stored_entries_load_into_an_equal_index(self) -> None:
        packed, names = self.index.pack()
        assert (packed, names) == self.plain.pack()
        table = SubjectTable()
        table.intern(b"already here")
        loaded = SegmentIndex.frombytes(5, table, packed, [table.intern(n) for n in names])
        assert loaded.pack() == (packed, names)
        assert loaded.live == self.index.live
        assert table.headed == self.plain.headed


TestIndexAgreement = IndexAgreement.TestCase


def test_a_sequence_is_found_in_a_dense_run_and_across_gaps() -> None:
    index = of(10, 10, 11, 12, 20, 21)
    assert [index.find(seq) for seq in (9, 10, 12, 13, 20, 21, 22)] == [-1, 0, 2, -1, 3, 4, -1]
    assert [index.position(seq) for seq in (0, 10, 13, 20, 21, 22)] == [0, 0, 3, 3, 4, 5]


def test_sequences_that_do_not_ascend_are_refused() -> None:
    index = of(10, 12)
    for seq in (9, 11, 12, 10 + 2**32):
        with pytest.raises(ValueError, match="does not follow"):
            index.append(0, seq, 0, b"s", 0, 0, 0, 0, 0)
    assert len(index) == 1


def test_positions_outside_are_refused() -> None:
    index = of(1, 1, 2)
    for i in (-1, 2, 10**9):
        for ask in (index.offset, index.seq, index.ts_ns, index.entry, index.delete, index.deleted):
            with pytest.raises(IndexError):
                ask(i)


def test_a_read_stops_before_the_committed_end_and_is_shifted_to_its_buffer() -> None:
    index = of(1, 1, 2, 3, 4)
    assert unpacked(index.offsets_from(1, 10, 10**6, stop=3, shift=150)[0]) == [50, 150]
    with pytest.raises(ValueError, match="before the buffer"):
        index.offsets_from(0, 10, 10**6, shift=150)


def test_a_read_gives_one_record_even_when_it_is_too_large() -> None:
    assert unpacked(of(1, 1, 2).offsets_from(0, 10, 0)[0]) == [100]


def test_a_read_that_is_full_goes_on_behind_the_deleted_records_that_follow() -> None:
    index = of(1, 1, 2, 3)
    index.delete(1)
    assert index.offsets_from(0, 2, 0)[1] == 2


def test_offsets_lead_to_the_frames_of_live_records() -> None:
    batch = Batch()
    for i in range(6):
        batch.add(b"s%d" % (i % 2), b"", b"", b"payload %d" % i)
    table = SubjectTable()
    index = SegmentIndex(1, table)
    data = _frames.encode_batch(batch, 0, 6, 7, 1, 0, index, 0, True)
    index.delete(2)
    chosen = id_set([table.find(b"s0")], table.bound)
    frames = _frames.Frames(data, index.offsets_from(0, 10, 10**6, ids=chosen)[0])
    assert [record[3] for record in frames] == [b"payload 0", b"payload 4"]


def test_the_newest_record_of_a_subject_is_searched_only_after_it_was_deleted() -> None:
    index = of(1, *range(1, 10), subject=lambda seq: b"odd" if seq % 2 else b"even")
    table = index.subjects
    odd = table.find(b"odd")
    assert (table.first_seq(odd), table.last_seq(odd), table.stale(odd)) == (1, 9, (False, False))
    index.delete(8)
    index.delete(0)
    assert table.stale(odd) == (True, True)
    last = index.last_live(index.position(table.last_seq(odd)), odd)
    first = index.first_live(index.position(table.first_seq(odd)), odd)
    assert (index.seq(first), index.seq(last)) == (3, 7)
    table.settle(odd, first_seq=3, last_seq=7)
    assert (table.first_seq(odd), table.last_seq(odd), table.stale(odd)) == (3, 7, (False, False))


def test_a_new_record_makes_the_last_sequence_exact_again() -> None:
    index = of(1, 1, 2, 3)
    index.delete(2)
    assert index.subjects.stale(0) == (False, True)
    index.append(0, 4, 40, b"s", 0, 0, 0, 0, 0)
    assert (index.subjects.last_seq(0), index.subjects.stale(0)) == (4, (False, False))


def test_the_one_record_that_is_left_of_a_subject_is_never_searched() -> None:
    index = of(1, 1, 2, 3)
    index.delete(0)
    assert index.subjects.stale(0) == (True, False)
    index.delete(1)
    assert (index.subjects.first_seq(0), index.subjects.stale(0)) == (3, (False, False))
    index.append(0, 4, 40, b"s", 0, 0, 0, 0, 0)
    index.delete(3)
    assert (index.subjects.last_seq(0), index.subjects.stale(0)) == (3, (False, False))


def test_last_and_first_live_of_nothing_is_minus_one() -> None:
    index = of(1, 1)
    assert (index.last_live(5, 7), index.first_live(0, 7), index.next_live(0, b"")) == (-1, -1, -1)
    index.delete(0)
    assert (index.last_live(0), index.first_live(0), index.next_live(0)) == (-1, -1, -1)


def test_a_subject_without_entries_gives_its_id_back() -> None:
    table = SubjectTable()
    old = SegmentIndex(1, table)
    new = SegmentIndex(1001, table)
    for seq in range(1, 1001):
        old.append(0, seq, 0, b"once.%d" % seq, 0, 0, 0, 0, 0)
    new.append(0, 1001, 0, b"once.7", 0, 0, 0, 0, 0)
    del old
    assert len(table) == 1
    assert table.subject(table.find(b"once.7")) == b"once.7"
    for seq in range(1002, 2001):
        new.append(0, seq, 0, b"again.%d" % seq, 0, 0, 0, 0, 0)
    assert (len(table), table.bound) == (1000, 1000)
    assert all(table.find(b"again.%d" % seq) >= 0 for seq in range(1002, 2001))
    assert table.find(b"once.8") == -1


def test_new_ids_are_told_apart_from_the_old_owners_of_the_same_number() -> None:
    table = SubjectTable()
    index = SegmentIndex(1, table)
    index.append(0, 1, 0, b"a", 0, 0, 0, 0, 0)
    index.append(0, 2, 0, b"b", 0, 0, 0, 0, 0)
    mark, fresh = table.born_since(0)
    assert [table.subject(i) for i in fresh] == [b"a", b"b"]
    assert table.born_since(mark) == (mark, [])
    index.truncate(1)
    index.append(0, 2, 0, b"c", 0, 0, 0, 0, 0)
    assert [table.subject(i) for i in table.born_since(mark)[1]] == [b"c"]


def test_unknown_ids_are_refused() -> None:
    table = SubjectTable()
    table.intern(b"a")
    for bad in (-1, 1, 10**9):
        for ask in (table.subject, table.count, table.first_seq, table.last_seq, table.stale):
            with pytest.raises(IndexError):
                ask(bad)
        with pytest.raises(IndexError):
            id_set([bad], table.bound)
    with pytest.raises(ValueError, match="65535"):
        table.intern(b"x" * 65536)


@given(st.lists(st.binary(max_size=20)))
def test_interning_gives_equal_subjects_one_id_and_others_another(names: list[bytes]) -> None:
    table = SubjectTable()
    ids = [table.intern(name) for name in names]
    assert [table.subject(i) for i in ids] == names
    assert [table.find(name) for name in names] == ids
    assert len(table) == len(set(names))


@pytest.mark.parametrize(
    ("data", "ids"),
    [
        (GOLDEN[:-1], [0]),
        (GOLDEN, []),
        (GOLDEN + GOLDEN, [0]),
    ],
    ids=["not whole entries", "unknown subject", "not ascending"],
)
def test_stored_entries_that_make_no_sense_are_refused(data: bytes, ids: list[int]) -> None:
    table = SubjectTable()
    table.intern(b"s")
    with pytest.raises(ValueError, match="entr"):
        SegmentIndex.frombytes(40, table, data, ids)
    with pytest.raises(IndexError):
        SegmentIndex.frombytes(40, table, GOLDEN, [7])


_FILL_AN_INDEX = """
from pathlib import Path
from millstream.kernel._batch import Batch
from millstream.kernel._frames import encode_batch
from millstream.kernel._index import SegmentIndex, SubjectTable

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

batch = Batch()
for i in range(1000):
    batch.add(b"subject.%d" % i, b"", b"", b"")
index = SegmentIndex(1, SubjectTable())
before = resident()
for first in range(1, 500_001, 1000):
    encode_batch(batch, 0, 1000, 7, first, 0, index, 0, False)
print((resident() - before) / len(index))
"""


def test_a_record_costs_at_most_64_bytes_of_memory() -> None:
    # In a process of its own: what other tests left on the heap must not count.
    told = subprocess.run(
        [sys.executable, "-c", _FILL_AN_INDEX], capture_output=True, text=True, check=True
    )
    assert 32 <= float(told.stdout) <= 64


def test_a_copy_leaves_dead_entries_out_but_the_last() -> None:
    index = SegmentIndex(1, SubjectTable())
    offset = 64
    for seq in range(1, 8):
        index.append(offset, seq, seq, b"s", 5, 0, 0, seq % 2, 0)
        offset += index.frame_len(seq - 1)
    for position in (1, 2, 6):
        index.delete(position)
    assert index.runs(1 << 16, False) == [(64, offset)]
    sizes = [index.frame_len(i) for i in range(7)]
    kept = index.runs(1 << 16, True)
    assert kept == [(64, 64 + sizes[0]), (64 + sum(sizes[:3]), offset)]
    assert index.compact(64) == 64 + sum(end - start for start, end in kept)
    assert [index.seq(i) for i in range(len(index))] == [1, 4, 5, 6, 7]
    assert (index.live, index.deleted(4), index.find(2)) == (4, True, -1)
    places = [unpacked(index.tag_places(0, 9))[i : i + 4] for i in (0, 4)]
    assert places == [[0, 64, 1, 1], [2, index.offset(2), 1, 1]]
