"""Blocks and keys: what was put in comes out, and nothing else ever does."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import StorageUnusable
from millstream.store.disk.blocks import (
    HEAD,
    LZ4,
    MOST_BYTES,
    PLAIN,
    BlockCache,
    cut_frames,
    decode_block,
    decode_head,
    encode_block,
    find_blocks,
    plain_image,
)
from millstream.store.disk.keys import NO_KEY, KeyRing

RING = KeyRing(b"one secret")
OPEN = KeyRing()
BOUND = b"log 1 segment 7"
forms = st.sampled_from([(PLAIN, OPEN), (LZ4, OPEN), (PLAIN, RING), (LZ4, RING)])
contents = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda b, n: b * n, st.binary(max_size=9), st.integers(0, 99)),
)


def written(pieces: list[bytes], codec: int, ring: KeyRing) -> bytes:
    data, offset = bytearray(64), 64
    for piece in pieces:
        data += encode_block(piece, offset, codec, ring, BOUND)
        offset += len(piece)
    return bytes(data)


@given(st.lists(contents, max_size=6), forms)
def test_what_went_into_blocks_comes_out(pieces: list[bytes], form: tuple[int, KeyRing]) -> None:
    codec, ring = form
    data = written(pieces, codec, ring)
    refs, damaged = find_blocks(data, 64, len(data), BOUND)
    assert damaged == []
    assert [bytes(decode_block(data, ref, BOUND, RING) or b"") for ref in refs] == pieces
    image, lost = plain_image(data, refs, BOUND, RING)
    assert bytes(image[64:]) == b"".join(pieces)
    assert lost == []


@settings(max_examples=300)
@given(st.lists(contents.filter(bool), min_size=3, max_size=5), forms, st.data())
def test_one_flipped_bit_costs_at_most_its_block(
    pieces: list[bytes], form: tuple[int, KeyRing], data: st.DataObject
) -> None:
    codec, ring = form
    whole = bytearray(written(pieces, codec, ring))
    bit = data.draw(st.integers(64 * 8, len(whole) * 8 - 1))
    whole[bit >> 3] ^= 1 << (bit & 7)
    refs, _ = find_blocks(bytes(whole), 64, len(whole), BOUND)
    image, lost = plain_image(bytes(whole), refs, BOUND, RING)
    assert len(lost) <= 1
    at, wrong = 64, 0
    for piece in pieces:
        found = bytes(image[at : at + len(piece)])
        wrong += found != piece
        assert found == piece or not any(found)
        at += len(piece)
    assert wrong <= 1


def test_heavier_damage_to_a_header_is_passed_by_a_search() -> None:
    pieces = [b"first " * 50, b"second " * 50, b"third " * 50]
    whole = bytearray(written(pieces, LZ4, RING))
    refs, _ = find_blocks(bytes(whole), 64, len(whole), BOUND)
    whole[refs[1].at : refs[1].at + 40] = bytes(40)
    found, damaged = find_blocks(bytes(whole), 64, len(whole), BOUND)
    assert [ref.offset for ref in found] == [refs[0].offset, refs[2].offset]
    assert damaged == [(refs[1].at, refs[2].at)]


def test_a_block_is_nothing_in_another_place() -> None:
    block = encode_block(b"frames", 64, PLAIN, RING, BOUND)
    assert decode_head(block, 0, BOUND) is not None
    assert decode_head(block, 0, b"log 2 segment 7") is None


def test_a_sealed_block_shows_nothing_and_opens_with_its_key_alone() -> None:
    block = encode_block(b"very secret", 64, LZ4, RING, BOUND)
    ref = decode_head(block, 0, BOUND)
    assert ref is not None
    assert b"secret" not in block
    assert bytes(decode_block(block, ref, BOUND, RING) or b"") == b"very secret"
    with pytest.raises(StorageUnusable, match=r"another key was given.*prev_key"):
        decode_block(block, ref, BOUND, KeyRing(b"other"))
    with pytest.raises(StorageUnusable, match=r"no key was given.*set jetstream"):
        decode_block(block, ref, BOUND, OPEN)
    rotated = KeyRing(b"new", [b"one secret"])
    assert bytes(decode_block(block, ref, BOUND, rotated) or b"") == b"very secret"


def test_both_ciphers_open_what_the_other_start_sealed() -> None:
    for cipher in ("aes", "chacha"):
        sealed = KeyRing(b"k", cipher=cipher).seal_whole(b"text", b"what")
        assert KeyRing(b"k").open_whole(sealed, b"what", "it") == b"text"
        assert KeyRing(b"k").open_whole(sealed, b"other", "it") is None


def test_no_nonce_comes_twice() -> None:
    rings = [KeyRing(b"k") for _ in range(3)]
    assert len({ring.nonce() for ring in rings for _ in range(100)}) == 300
    assert OPEN.key_id == NO_KEY
    assert KeyRing(b"k").key_id == KeyRing(b"k").key_id != KeyRing(b"l").key_id


def test_an_empty_key_is_refused() -> None:
    with pytest.raises(StorageUnusable, match="the encryption key is empty"):
        KeyRing(b"")


def test_a_block_takes_whole_frames_of_at_most_64_kib_or_one_larger() -> None:
    rng = random.Random(1)
    sizes = [rng.choice((100, 5000, 70_000)) for _ in range(60)]
    data = b"".join(b"\0\0\0\0" + n.to_bytes(4, "little") + bytes(n - 8) for n in sizes)
    pieces = list(cut_frames(memoryview(data)))
    assert b"".join(pieces) == data
    assert all(len(p) <= MOST_BYTES or len(p) == 70_000 for p in pieces)


def test_the_cache_never_holds_more_than_it_may() -> None:
    cache = BlockCache(100)
    for offset in range(10):
        cache.put(1, offset, b"x" * 30)
    assert [cache.get(1, offset) is not None for offset in range(10)] == [False] * 7 + [True] * 3
    cache.get(1, 7)
    cache.put(2, 0, b"y" * 30)
    assert cache.get(1, 7) is not None
    assert cache.get(1, 8) is None
    cache.put(3, 0, b"z" * 101)
    assert cache.get(3, 0) is None
    cache.forget(1)
    assert cache.get(1, 7) is None


def test_the_header_has_64_bytes() -> None:
    assert HEAD.size == 64
