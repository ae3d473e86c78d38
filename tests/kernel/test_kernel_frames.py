import mmap
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.kernel import _frames
from millstream.kernel._batch import Batch
from millstream.kernel._index import SegmentIndex, SubjectTable
from millstream.kernel._xxh3 import xxh3_64
from millstream.kernel.reference import frames as reference
from millstream.kernel.reference.frames import Fields
from millstream.message import Record

small = st.binary(max_size=12)
some_fields = st.builds(
    Fields, st.binary(min_size=1, max_size=12), small, small, small, small, small
)
some_records = st.lists(some_fields, min_size=1, max_size=6)
numbers = st.integers(0, 2**64 - 1)


def batch_of(records: list[Fields]) -> Batch:
    batch = Batch()
    for subject, payload, headers, tag, node, meta in records:
        batch.add(subject, b"_INBOX.reply", headers, payload, tag, node, meta)
    return batch


def encoded(records: list[Fields], first_seq: int = 1, whole: bool = False) -> bytes:
    return _frames.encode_batch(
        batch_of(records), 0, len(records), 7, first_seq, 1_000, None, 0, whole
    )


def three() -> bytes:
    return encoded([Fields(b"a.b", b"one"), Fields(b"c", b"two", b"h"), Fields(b"d", b"three")])


def starts(data: bytes) -> list[int]:
    return [frame[5] for frame in _frames.scan(data)[0]]


# One record: stream 7, seq 42, subject "orders.eu", node "n1", tag "t", meta "{}", headers "h",
# payload "hello"; the same bytes stand in docs/reference/storage-format.md.
GOLDEN = bytes.fromhex(
    "f76d733151000000010009000500000001000200010002000700000000000000"
    "2a0000000000000000002a36fe9c97170190efc7"
    "6f72646572732e6575746e317b7d6868656c6c6f25acc6e6885c97dd00"
)
GOLDEN_FIELDS = Fields(b"orders.eu", b"hello", b"h", b"t", b"n1", b"{}")


def test_a_frame_has_exactly_these_bytes() -> None:
    batch = batch_of([GOLDEN_FIELDS])
    ts_ns = 1_700_000_000_000_000_000
    assert _frames.encode_batch(batch, 0, 1, 7, 42, ts_ns, None, 0, True) == GOLDEN
    assert reference.encode_batch([GOLDEN_FIELDS], 7, 42, ts_ns, True) == GOLDEN


def test_the_golden_frame_is_in_the_documentation() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "storage-format.md"
    assert GOLDEN.hex() in page.read_text().replace("\n", "").replace(" ", "")


@given(some_records, numbers, st.integers(1, 2**63), numbers, st.booleans())
def test_encoding_agrees_with_the_reference(
    records: list[Fields], stream_id: int, seq: int, ts_ns: int, whole: bool
) -> None:
    batch = batch_of(records)
    made = _frames.encode_batch(batch, 0, len(records), stream_id, seq, ts_ns, None, 0, whole)
    assert made == reference.encode_batch(records, stream_id, seq, ts_ns, whole)


@given(some_records, numbers, st.integers(1, 2**40), st.randoms(), numbers)
def test_encoding_under_given_sequences_and_times_agrees_with_the_reference(
    records: list[Fields], stream_id: int, seq: int, rng: random.Random, least_ns: int
) -> None:
    seqs, times = [], []
    for _ in records:
        seq += rng.choice((1, 1, 2, 1000))
        seqs.append(seq)
        times.append(rng.randrange(2**64))
    batch = batch_of(records)
    made = _frames.encode_exact(batch, 0, len(records), stream_id, seqs, times, least_ns, None, 0)
    assert made == reference.encode_exact(records, stream_id, seqs, times, least_ns)


@given(some_records, st.integers(0, 400))
def test_pieces_are_cut_as_the_reference_cuts_them(records: list[Fields], most: int) -> None:
    data = reference.encode_batch(records, 1, 1, 1, True)
    pieces = _frames.cut(data, most)
    assert pieces == reference.cut(data, most)
    assert b"".join(data[start:end] for start, end, _ in pieces) == data
    assert sum(count for _, _, count in pieces) == len(records)


@pytest.mark.parametrize("damaged", [b"short", bytes(80), b"\xf7ms1\xff\xff\xff\x7f" + bytes(80)])
def test_what_is_no_frame_is_not_cut(damaged: bytes) -> None:
    with pytest.raises(ValueError, match="no frame at 0"):
        _frames.cut(damaged, 100)


def test_given_sequences_that_do_not_ascend_or_fit_leave_the_index_as_it_was() -> None:
    index = SegmentIndex(10, SubjectTable())
    batch = batch_of([Fields(b"a", b"x")] * 2)
    for seqs in ([12, 12], [12, 11], [9, 12], [12, 10 + 2**32], [12]):
        with pytest.raises(ValueError, match=r"ascend|follow|each"):
            _frames.encode_exact(batch, 0, 2, 7, seqs, [1, 1], 0, index, 0)
    assert len(index) == 0
    _frames.encode_exact(batch, 0, 2, 7, [12, 9 + 2**32], [5, 3], 4, index, 64)
    assert [(index.seq(i), index.ts_ns(i)) for i in range(2)] == [(12, 5), (9 + 2**32, 5)]
    assert (index.find(12), index.find(13), index.position(13)) == (0, -1, 1)


@given(st.integers(0, 255), numbers, numbers, numbers, st.binary(max_size=300))
def test_control_frames_agree_with_the_reference_and_give_their_body_back(
    kind: int, stream_id: int, seq: int, ts_ns: int, body: bytes
) -> None:
    made = _frames.encode_control(kind, stream_id, seq, ts_ns, body)
    assert made == reference.encode(kind, 0, stream_id, seq, ts_ns, Fields(b"", body))
    assert _frames.body(made, 0) == body


@given(some_records)
def test_records_come_back_in_the_order_of_the_record_fields(records: list[Fields]) -> None:
    data = encoded(records, first_seq=5)
    frames = _frames.Frames(data, starts(data))
    assert [Record(*frames.record(i)) for i in range(len(frames))] == [
        Record(5 + i, 1_000, *fields) for i, fields in enumerate(records)
    ]
    assert list(frames) == [frames.record(i) for i in range(len(frames))]


@given(some_records, st.integers(0, 6), st.integers(0, 6))
def test_a_part_of_a_batch_is_encoded_as_if_it_were_alone(
    records: list[Fields], start: int, count: int
) -> None:
    start = min(start, len(records))
    count = min(count, len(records) - start)
    made = _frames.encode_batch(batch_of(records), start, count, 7, 1, 1_000, None, 0, True)
    assert made == reference.encode_batch(records[start : start + count], 7, 1, 1_000, True)


def test_only_a_whole_batch_marks_its_frames_and_never_the_last() -> None:
    records = [Fields(b"a", b"")] * 3
    assert [f[1] for f in _frames.scan(encoded(records, whole=True))[0]] == [1, 1, 0]
    assert [f[1] for f in _frames.scan(encoded(records, whole=False))[0]] == [0, 0, 0]


def test_what_a_frame_cannot_hold_is_refused_before_the_index_changes() -> None:
    good = Fields(b"a", b"")
    index = SegmentIndex(1, SubjectTable())
    for bad in (
        Fields(b"a", b"", headers=b"h" * 65536),
        Fields(b"a", b"", meta=b"m" * 65536),
        Fields(b"a", b"", node=b"n" * 256),
    ):
        with pytest.raises(ValueError, match="at most"):
            _frames.encode_batch(batch_of([good, bad]), 0, 2, 7, 1, 0, index, 0, True)
    with pytest.raises(OverflowError):
        _frames.encode_batch(batch_of([good]), 0, 1, 7, 1, 0, index, 2**32 - 20, True)
    with pytest.raises(ValueError, match="does not follow"):
        _frames.encode_batch(batch_of([good]), 0, 1, 7, 0, 0, index, 0, True)
    with pytest.raises(IndexError):
        _frames.encode_batch(batch_of([good]), 1, 1, 7, 1, 0, index, 0, True)
    assert len(index) == 0


def test_the_longest_fields_are_kept() -> None:
    fields = Fields(b"s" * 65535, b"p", b"h" * 65535, b"t" * 65535, b"n" * 255, b"m" * 65535)
    data = encoded([fields])
    assert _frames.Frames(data, [0]).record(0) == (1, 1_000, *fields)


def test_encoding_fills_the_index_with_where_each_frame_lies() -> None:
    index = SegmentIndex(10, SubjectTable())
    records = [Fields(b"a", b"1"), Fields(b"b", b"22", b"h"), Fields(b"a", b"")]
    data = _frames.encode_batch(batch_of(records), 0, 3, 7, 11, 99, index, 500, True)
    at = starts(data)
    assert index.entry(0) == (500, 11, 99, 0, 1, 0, 0, 0, 0, 0)
    assert index.entry(1) == (500 + at[1], 12, 99, 1, 2, 1, 0, 0, 0, 0)
    assert index.entry(2) == (500 + at[2], 13, 99, 0, 0, 0, 0, 0, 0, 0)


@given(some_records, st.data())
def test_checks_agree_with_the_reference_at_every_offset_of_damaged_bytes(
    records: list[Fields], data: st.DataObject
) -> None:
    raw = bytearray(encoded(records))
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.sampled_from([0, 1, 0xD5, 255]))
    cut = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    for at in (-1, *range(len(cut) + 2)):
        assert _frames.check(cut, at) == reference.check(cut, at)
        assert _frames.check_header(cut, at) == reference.check_header(cut, at)


def flipped(data: bytes, bits: list[int]) -> bytes:
    broken = bytearray(data)
    for bit in bits:
        bit %= 8 * len(data)
        broken[bit >> 3] ^= 1 << (bit & 7)
    return bytes(broken)


pieces = st.one_of(
    st.builds(
        flipped, some_records.map(encoded), st.lists(st.integers(0, 800), min_size=1, max_size=3)
    ),
    some_fields.map(lambda fields: encoded([fields._replace(payload=three())])),
    some_records.map(encoded),
    some_records.map(lambda records: encoded(records)[:-5]),
    some_records.map(lambda records: encoded(records)[3:]),
    st.builds(bytes, st.integers(0, 80)),
    st.just(struct.pack("<I", _frames.MAGIC)),
    small,
)


@given(st.lists(pieces, max_size=5))
def test_scanning_any_mixture_agrees_with_the_reference(parts: list[bytes]) -> None:
    data = b"".join(parts)
    assert _frames.scan(data) == reference.scan(data)


def test_any_flipped_bit_loses_at_most_one_record_and_is_reported() -> None:
    inner = three()  # frames inside a payload must not come to light
    data = encoded([Fields(b"a", b"1"), Fields(b"b", inner, b"h"), Fields(b"c", b"3")])
    sound, _ = _frames.scan(data)
    ends = {frame[5] + frame[6] - 1 for frame in sound}
    for bit in range(8 * len(data)):
        frames, damaged = _frames.scan(flipped(data, [bit]))
        lost = [frame for frame in sound if frame not in frames]
        if bit >> 3 in ends:  # one bit does not make a delete flag
            assert (lost, damaged) == ([], [])
        else:
            assert len(lost) == 1
            assert damaged == [(lost[0][5], lost[0][5] + lost[0][6])]
        assert all(frame in sound for frame in frames)


def test_a_wrecked_header_loses_one_record() -> None:
    data = bytearray(three())
    first, second, third = starts(bytes(data))
    data[second : second + 30] = bytes(30)
    frames, damaged = _frames.scan(data)
    assert [frame[5] for frame in frames] == [first, third]
    assert damaged == [(second, third)]


def test_cut_at_any_byte_the_whole_frames_are_found_and_the_rest_is_damage() -> None:
    data = three()
    sound, _ = _frames.scan(data)
    for size in range(len(data) + 1):
        frames, damaged = _frames.scan(data[:size])
        assert frames == [frame for frame in sound if frame[5] + frame[6] <= size]
        end = frames[-1][5] + frames[-1][6] if frames else 0
        assert damaged == ([(end, size)] if end < size else [])


def test_a_cut_frame_never_shows_the_frames_in_its_payload() -> None:
    data = encoded([Fields(b"a", three())])[:-1]
    assert _frames.scan(data) == ([], [(0, len(data))])


@pytest.mark.parametrize("length", [0, 1, 51, 60, 2**31, 2**32 - 1])
def test_a_length_that_lies_is_not_believed_even_with_a_right_check(length: int) -> None:
    good = three()
    for field, size in ((4, 4), (12, 4), (10, 2)):
        head = bytearray(good[:48])
        head[field : field + size] = (length & (2 ** (8 * size) - 1)).to_bytes(size, "little")
        forged = bytes(head) + (xxh3_64(bytes(head)) & 0xFFFFFFFF).to_bytes(4, "little")
        data = forged + good[52:]
        assert _frames.check(data, 0) == 0
        assert [frame[3] for frame in _frames.scan(data)[0]] == [2, 3]
        with pytest.raises(ValueError, match="no frame"):
            _frames.Frames(data, [0])


def test_random_bytes_hold_no_frame_and_raise_nothing() -> None:
    chance = random.Random(3)
    for _ in range(300):
        noise = bytearray(chance.randbytes(chance.randrange(400)))
        for _ in range(3):
            if len(noise) > 8:
                at = chance.randrange(len(noise) - 4)
                noise[at : at + 4] = struct.pack("<I", _frames.MAGIC)
        frames, damaged = _frames.scan(noise)
        assert frames == []
        assert damaged == ([(0, len(noise))] if noise else [])
        index = SegmentIndex(1, SubjectTable())
        assert _frames.index_frames(noise, 0, len(noise), 7, index)[:2] == (0, 0)


def test_a_deleted_frame_is_reported_as_such_even_when_its_body_was_erased() -> None:
    data = bytearray(three())
    _, second, third = starts(bytes(data))
    data[third - 1] = _frames.DELETED
    assert [frame[7] for frame in _frames.scan(data)[0]] == [False, True, False]
    data[second + 52 : third - 1] = bytes(third - 1 - second - 52)
    frames, damaged = _frames.scan(data)
    assert [frame[7] for frame in frames] == [False, True, False]
    assert damaged == []
    assert _frames.check(data, second) == third - second
    data[second + 33] ^= 1
    assert _frames.check(data, second) == 0
    assert _frames.scan(data)[1] == [(second, third)]


def test_scan_stays_between_start_and_stop() -> None:
    data = three()
    first, second, third = starts(data)
    assert [f[5] for f in _frames.scan(data, second, third)[0]] == [second]
    assert _frames.scan(data, second, third + 10)[1] == [(third, third + 10)]
    assert _frames.scan(data, first, first) == ([], [])


@given(some_records, st.integers(0, 1000))
def test_indexing_gives_the_same_index_as_encoding(records: list[Fields], shift: int) -> None:
    made, found = (SegmentIndex(1, SubjectTable()) for _ in range(2))
    data = _frames.encode_batch(
        batch_of(records), 0, len(records), 7, 1, 1_000, made, 3 + shift, False
    )
    result = _frames.index_frames(b"xyz" + data, 3, 3 + len(data), 7, found, shift)
    assert result == (len(records), 3 + len(data), _frames.END)
    assert found.tobytes() == made.tobytes()


def test_indexing_stops_where_something_is_wrong_and_says_why() -> None:
    data = three()
    _, second, third = starts(data)

    def outcome(raw: bytes, stream_id: int = 7, base_seq: int = 1) -> tuple[int, int, int]:
        return _frames.index_frames(
            raw, 0, len(raw), stream_id, SegmentIndex(base_seq, SubjectTable())
        )

    assert outcome(data[: third + 60]) == (2, third, _frames.TORN)
    assert outcome(data[: third + 20]) == (2, third, _frames.DAMAGED)
    assert outcome(data[:second] + bytes(100)) == (1, second, _frames.DAMAGED)
    assert outcome(data, stream_id=8) == (0, 0, _frames.FOREIGN)
    assert outcome(data + _frames.encode_control(16, 7, 4, 0, b"")) == (
        3,
        len(data),
        _frames.FOREIGN,
    )
    assert outcome(data + data) == (3, len(data), _frames.DISORDER)
    assert outcome(data, base_seq=2) == (0, 0, _frames.DISORDER)
    broken = bytearray(data)
    broken[second + 55] ^= 4
    assert outcome(bytes(broken)) == (1, second, _frames.DAMAGED)


def test_indexing_keeps_deleted_records_as_deleted() -> None:
    data = bytearray(three())
    _, second, _ = starts(bytes(data))
    data[second - 1] = _frames.DELETED
    subjects = SubjectTable()
    index = SegmentIndex(1, subjects)
    assert _frames.index_frames(data, 0, len(data), 7, index)[0] == 3
    assert [index.deleted(i) for i in range(3)] == [True, False, False]
    assert (index.live, subjects.count(subjects.find(b"a.b"))) == (2, 0)


def test_frames_verify_all_checksums_and_name_the_first_bad_one() -> None:
    data = bytearray(three())
    at = starts(bytes(data))
    assert _frames.Frames(data, at).verified() == -1
    data[at[2] - 10] ^= 1
    assert _frames.Frames(data, at).verified() == 1
    data[at[0] + 40] ^= 1  # only the header check can tell
    assert _frames.Frames(data, at).verified() == 0


def test_frames_work_over_a_mapped_file_without_a_copy_and_hold_it(tmp_path: Path) -> None:
    path = tmp_path / "seg.data"
    path.write_bytes(b"head" + three())
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        at = starts(three())
        frames = _frames.Frames(memoryview(mapped)[4:], at)
        assert frames.record(2)[3] == b"three"
        assert frames.raw() == three()
        with pytest.raises(BufferError):
            mapped.close()
        del frames


def test_frames_take_packed_offsets_and_show_their_extent() -> None:
    data = three()
    at = starts(data)
    frames = _frames.Frames(data, struct.pack("<2I", at[0], at[2]))
    assert (len(frames), frames.offsets, frames.first_seq, frames.last_seq) == (2, [0, at[2]], 1, 3)
    assert frames.raw() == data[: at[1]] + data[at[2] :]
    assert frames.raw(1) == data[at[2] :]
    assert frames.size == len(frames.raw())
    assert bytes(frames.buffer) == data
    empty = _frames.Frames(b"", [])
    assert (len(empty), empty.first_seq, empty.last_seq, empty.raw()) == (0, 0, 0, b"")
    for bad in (-1, 2):
        with pytest.raises(IndexError):
            frames.record(bad)


@pytest.mark.parametrize("offset", [1, 60, 10**6, 2**32 - 1])
def test_an_offset_that_is_no_frame_is_refused(offset: int) -> None:
    with pytest.raises(ValueError, match="frame"):
        _frames.Frames(three(), [0, offset])
