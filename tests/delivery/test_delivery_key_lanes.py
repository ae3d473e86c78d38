"""Key lanes against a plain model: one record of each key is out, the next is the lowest."""

import random

import pytest

from millstream.delivery.key_lanes import KeyLanes
from millstream.delivery.record_key import LONGEST_KEY, RecordKey, shown_key


@pytest.mark.parametrize("seed", range(20))
def test_the_next_of_a_key_is_the_lowest_that_waits(seed: int) -> None:
    chance = random.Random(seed)
    lanes = KeyLanes()
    lanes.switch(on=True)
    out: dict[bytes, int] = {}
    waiting: dict[bytes, list[int]] = {}
    for seq in range(1, 400):
        key = b"%d" % chance.randrange(6)
        assert lanes.is_free(key) == (key not in out)
        if key in out:
            lanes.park(seq, key)
            waiting.setdefault(key, []).append(seq)
        else:
            lanes.offer({seq: key})
            lanes.take(seq)
            out[key] = seq
        while out and chance.random() < 0.5:
            key = chance.choice(sorted(out))
            if waiting.get(key) and chance.random() < 0.3:  # one that waits is removed
                gone = chance.choice(waiting[key])
                waiting[key].remove(gone)
                assert lanes.release(gone) == 0
            done = out.pop(key)
            following = lanes.release(done)
            expected = waiting[key].pop(0) if waiting.get(key) else 0
            assert following == expected
            if following:
                out[key] = following
                lanes.take(following)
        assert len(lanes.waiting) == sum(map(len, waiting.values()))
    longest = max(waiting.items(), key=lambda each: len(each[1]))
    blocked = lanes.blocked(1)
    assert [each.waiting for each in blocked] == ([len(longest[1])] if longest[1] else [])


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("token:1", b"orders"),
        ("token:3", b"new"),
        ("token:4", b""),
        ("header:Id", b"9"),
        ("header:id", b""),
        ("tag", b"customer=7,region=eu"),
        ("tag:region", b"eu"),
        ("tag:cust", b""),
    ],
)
def test_a_key_is_found_where_its_rule_says(text: str, key: bytes) -> None:
    rule = RecordKey.read(text)
    assert rule.text == text
    headers = b"NATS/1.0\r\nId: 9\r\n\r\n"
    assert rule.of(b"orders.7.new", headers, b"customer=7,region=eu") == key


def test_a_long_key_takes_no_more_room_than_a_short_one() -> None:
    rule = RecordKey.read("tag")
    keys = [rule.of(b"s", b"", b"x" * LONGEST_KEY + tail) for tail in (b"a", b"b")]
    assert keys[0] != keys[1]
    assert max(map(len, keys)) < LONGEST_KEY
    assert shown_key(keys[0]).startswith("#")


@pytest.mark.parametrize(
    "text", ["", "token", "token:0", "token:-1", "token:²", "header:a b", "x:y"]
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a key is token:N"):
        RecordKey.read(text)
