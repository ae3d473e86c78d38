import random

import pytest
import xxhash

from millstream.kernel._xxh3 import xxh3_64


def test_the_empty_string_has_the_published_hash() -> None:
    assert xxh3_64(b"") == 0x2D06800538D394C2


@pytest.mark.parametrize("lanes", [8, 4, 1])
def test_every_length_up_to_3100_agrees_with_the_library(lanes: int) -> None:
    data = random.Random(1).randbytes(3100)
    for size in range(3101):
        assert xxh3_64(data[:size], lanes) == xxhash.xxh3_64_intdigest(data[:size]), size


@pytest.mark.parametrize("lanes", [8, 4, 1])
@pytest.mark.parametrize("fill", [0x00, 0xFF])
def test_extreme_bytes_agree_with_the_library(fill: int, lanes: int) -> None:
    for size in (*range(260), 1023, 1024, 1025, 5000):
        data = bytes([fill]) * size
        assert xxh3_64(data, lanes) == xxhash.xxh3_64_intdigest(data), size


@pytest.mark.parametrize("lanes", [8, 4, 1])
def test_large_inputs_of_any_length_and_alignment_agree_with_the_library(lanes: int) -> None:
    chance = random.Random(2)
    data = chance.randbytes(1 << 20)
    for _ in range(200):
        start = chance.randrange(64)
        part = data[start : start + chance.randrange(2048, len(data))]
        assert xxh3_64(part, lanes) == xxhash.xxh3_64_intdigest(part)


def test_anything_but_bytes_is_refused() -> None:
    with pytest.raises(TypeError):
        xxh3_64("text")  # type: ignore[arg-type]
