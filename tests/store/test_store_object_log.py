"""The log on an object store: no acked entry is lost, whatever the store answers."""

from collections import Counter
from typing import Any

import pytest

from millstream.store.object_log import head, judgement, take_over, trim
from millstream.store.object_log.entry import EPOCH, RECORDS, Chain, Codec, LogObject, Unsound
from millstream.store.object_log.head import HeadCodec
from millstream.store.object_log.requests import Create, carried_out
from millstream.store.object_log.take_over import BrokenLog, LogReader
from support.fake_store import FakeStore
from support.object_log_model import Model
from support.scale import count

STEPS = 500
PLANTED = (
    "ack before the put",
    "window exceeded",
    "sequence given back",
    "epoch entries are trimmed",
    "deletes before the floor rises",
)


def test_no_history_loses_what_was_acked(capsys: pytest.CaptureFixture[str]) -> None:
    fired: Counter[str] = Counter()
    wrong: dict[int, list[str]] = {}
    histories = count(2_000, 50_000)
    for seed in range(histories):
        model = Model(seed)
        if found := model.run(STEPS):
            wrong[seed] = found
        fired.update(model.fired)
        fired.update(model.network.fired)
        fired["acked"] += len(model.history.acked)
    with capsys.disabled():
        print(f"\nlog on a store: {histories} histories, {dict(fired)}, {len(wrong)} violations")
    assert wrong == {}
    for what in ("took over", "was fenced", "trimmed", "crashed", "paused"):
        assert fired[what] > histories / 10, what
    assert fired["landed after its client gave up"] > histories / 10


def is_found(bug: str = "", most: int = 5_000) -> bool:
    bugs = frozenset({bug} if bug else ())
    return any(Model(seed, bugs).run(STEPS) for seed in range(most))


@pytest.mark.parametrize("bug", PLANTED)
def test_a_writer_s_planted_bug_is_found(bug: str) -> None:
    assert is_found(bug)


def _resumes_at_once(entry: LogObject) -> Chain:
    return Chain(entry.position + 1, entry.epoch, entry.nonce, entry.check)


@pytest.mark.parametrize(
    ("place", "name", "bug"),
    [
        (take_over, "counts", lambda epoch, now: True),
        (take_over, "proves", lambda read, now: True),
        (LogObject, "after", _resumes_at_once),
        (head, "joined", lambda mine, theirs: mine),
    ],
    ids=["no second read of the floor", "no first one", "no dead window", "a head that falls"],
)
def test_a_planted_bug_of_the_rules_is_found(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, bug: Any
) -> None:
    monkeypatch.setattr(place, name, bug)
    if place is head:
        monkeypatch.setattr(trim, name, bug)
    assert is_found()


def test_debris_fences_nobody() -> None:
    codec = Codec(0, b"key")
    ours = codec.encode(Chain(9, 5, 2, 0), RECORDS, b"ours")
    older = codec.encode(Chain(9, 3, 1, 0), RECORDS, b"theirs")
    newer = codec.encode(Chain(9, 9, 3, 0), EPOCH, b"", 4)
    assert isinstance(judgement.judge(codec, ours, older, 9), judgement.Older)
    assert judgement.judge(codec, ours, newer, 9) == judgement.TakenBy(9, 3)
    assert judgement.judge(codec, ours, ours, 9) == judgement.STORED


@pytest.mark.parametrize("at", [0, 8, 16, 40, 64, 72, 110])
def test_a_changed_byte_is_named_and_never_taken_for_an_entry(at: int) -> None:
    codec = Codec(0, b"key")
    data = bytearray(codec.encode(Chain(9, 5, 2, 0), RECORDS, b"ours and more"))
    data[at] ^= 1
    assert isinstance(codec.decode(bytes(data), 9), Unsound)


def test_an_entry_that_was_moved_or_signed_with_another_key_is_named() -> None:
    codec = Codec(0, b"key")
    data = codec.encode(Chain(9, 5, 2, 0), RECORDS, b"ours")
    assert codec.decode(data, 10) == Unsound("it belongs to another shard or position")
    assert Codec(1, b"key").decode(data, 9) == Unsound("it belongs to another shard or position")
    assert Codec(0, b"kex").decode(data, 9) == Unsound("it was not written with the fleet's key")


def test_a_broken_chain_stops_the_take_over_and_is_named() -> None:
    store, codec = FakeStore(), Codec(0, b"key")
    reader = LogReader(codec, HeadCodec(0, b"key"), 4)
    won = carried_out(reader.take_over(1), store)
    position = won.chain.position
    stray = codec.encode(Chain(position, won.epoch, 1, 12345), RECORDS, b"stray")
    store.carry_out(Create(codec.name(position), stray))
    with pytest.raises(BrokenLog, match=f"position {position}: it does not follow"):
        carried_out(reader.take_over(2), store)
