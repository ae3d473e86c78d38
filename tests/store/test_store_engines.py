"""What every commit engine does, and what a committer makes of one that answers as it likes."""

from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.clock import ManualClock
from millstream.errors import MillstreamError, ShardReadOnly
from millstream.kernel._batch import Batch
from millstream.kernel._frames import encode_batch
from millstream.store.disk.files import Files, OsFiles, ensure_dir
from millstream.store.object_log.entry import Chain, Codec, LogObject
from millstream.store.object_log.folder import FolderPlace
from millstream.store.object_log.object_engine import ObjectEngine
from millstream.store.object_log.requests import FoundObject, Get, ObjectPlace
from millstream.store.wal.commit import OK, CommitEngine, Outcome, Taken
from millstream.store.wal.commit_queue import Limits
from millstream.store.wal.committer import Committer
from millstream.store.wal.entry import FrameRun, decode_entry, encode_entry, scan_entries
from millstream.store.wal.local_engine import HEADER, LocalEngine, wal_indexes, wal_name
from millstream.store.wal.positions import LONGEST_PAUSE, PATIENCE, Positions
from millstream.store.wal.submission import Submission
from support.fake_disk import FakeDisk
from support.fake_store import FakeStore
from support.scale import count
from support.scripted_engine import (
    AT_ONCE,
    FAULTS,
    FORGOTTEN,
    LANDED,
    LATE,
    LOST,
    SLOW,
    TAKEN,
    ScriptedEngine,
)

STAMP = (3, 7)
Held = Callable[[], dict[int, bytes]]
Answers = list[tuple[int, Outcome]]


def entry(position: int, text: bytes = b"x") -> tuple[bytes, bytes]:
    batch = Batch()
    batch.add(b"s", b"", b"", text)
    data = encode_batch(batch, 0, 1, 1, position, 1, None, 0, False)
    return encode_entry(position, *STAMP, 0, True, [FrameRun(1, position, 1, len(data))], [data])


class Place:
    """An engine, and a way to look at what it holds."""

    def __init__(self, engine: CommitEngine, held: Held) -> None:
        self.engine = engine
        self.held = held


def local(files: Files, directory: str) -> Place:
    ensure_dir(files, directory)
    engine = LocalEngine(files, directory, 0, *STAMP, 1, 1, 4096)

    def held() -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for index in wal_indexes(files, directory):
            file = files.open(f"{directory}/{wal_name(index)}")
            data = memoryview(file.pread(file.size(), 0))
            file.close()
            after = max(found, default=0)
            for each in scan_entries(data, HEADER.size, after):
                if hasattr(each, "position"):
                    found[each.position] = bytes(data[each.start : each.end])
        return found

    return Place(engine, held)


def on_objects(place: ObjectPlace) -> Place:
    """An engine over objects; a thread of its own would make no difference to what it answers."""
    codec = Codec(0, b"key")
    engine = ObjectEngine(
        place, codec, Chain(1, *STAMP, 0), 4, lambda call: call(), lambda at: None
    )

    def held() -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for position in range(1, engine.position + engine.ahead):
            answer = place.carry_out(Get(codec.name(position)))
            if isinstance(answer, FoundObject):
                entry = codec.decode(answer.data, position)
                assert isinstance(entry, LogObject)
                found[position] = entry.body
        return found

    return Place(engine, held)


@pytest.fixture(params=["fake disk", "real disk", "scripted", "fake store", "folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path, s3: object) -> Any:
    if request.param == "fake disk":
        found = local(FakeDisk(), "/wal")
    elif request.param == "real disk":
        found = local(OsFiles(), str(tmp_path / "wal"))
    elif request.param == "fake store":
        found = on_objects(FakeStore())
    elif request.param == "folder":
        found = on_objects(FolderPlace(OsFiles(), str(tmp_path / "objects"), "one"))
    elif request.param == "bucket":
        found = on_objects(request.getfixturevalue("bucket"))
    else:
        engine = ScriptedEngine()
        found = Place(engine, lambda: engine.entries)
    yield found
    found.engine.close()


def ask(place: Place, position: int, data: tuple[bytes, bytes]) -> Answers:
    answers: Answers = []
    outcome = place.engine.append_at(position, data, lambda *answer: answers.append(answer))
    return answers if outcome is None else [(position, outcome)]


# --- what every engine does


def test_an_entry_that_is_answered_for_holds_its_position(place: Place) -> None:
    first = place.engine.position
    for position in range(first, first + 20):
        assert ask(place, position, entry(position, b"y" * 200)) == [(position, OK)]
        assert place.engine.position == position + 1
        assert place.held()[position] == b"".join(entry(position, b"y" * 200))


def test_asking_again_with_the_same_bytes_is_harmless(place: Place) -> None:
    assert ask(place, 1, entry(1)) == ask(place, 1, entry(1)) == [(1, OK)]
    assert place.held() == {1: b"".join(entry(1))}
    assert place.engine.position == 2


def test_a_position_is_given_away_once(place: Place) -> None:
    ask(place, 1, entry(1))
    ((position, outcome),) = ask(place, 1, entry(1, b"another"))
    assert (position, type(outcome)) == (1, Taken)
    assert place.held() == {1: b"".join(entry(1))}


def test_a_sync_covers_every_entry_that_was_answered_for(place: Place) -> None:
    assert place.engine.synced_position == 0
    for position in (1, 2, 3):
        ask(place, position, entry(position))
    place.engine.sync()
    assert place.engine.synced_position == 3


def test_bytes_are_counted_as_they_are_taken(place: Place) -> None:
    before = place.engine.written
    ask(place, 1, entry(1))
    assert place.engine.written - before == len(b"".join(entry(1)))


def test_what_is_begun_with_is_stable_and_followed_by_what_comes(place: Place) -> None:
    place.engine.begin([entry(1), entry(2)])
    assert (place.engine.position, place.engine.synced_position) == (3, 2)
    assert ask(place, 3, entry(3)) == [(3, OK)]
    assert sorted(place.held()) == [1, 2, 3]


def test_what_no_start_needs_may_go_and_what_it_needs_stays(place: Place) -> None:
    for position in range(1, 40):
        ask(place, position, entry(position, bytes(300)))
    place.engine.sync()
    place.engine.drop_below(20)
    assert set(range(21, 40)) <= set(place.held())


@pytest.mark.parametrize("end", ["close", "retire"])
def test_a_closed_engine_takes_nothing(place: Place, end: str) -> None:
    ask(place, 1, entry(1))
    getattr(place.engine, end)()
    with pytest.raises(ShardReadOnly):
        ask(place, 2, entry(2))
    with pytest.raises(ShardReadOnly):
        place.engine.sync()


def test_an_engine_that_was_prepared_has_room_and_says_so(place: Place) -> None:
    ask(place, 1, entry(1))
    place.engine.prepare(0.0)
    assert place.engine.is_prepared
    assert place.engine.room > 1000


# --- what a committer makes of it


class Rig:
    """A committer over an engine, without a thread: the test says who is next."""

    def __init__(self, place: Place, **limits: Any) -> None:
        self.place = place
        self.clock = ManualClock()
        self.posted: deque[Callable[[], None]] = deque()
        self.failed: list[MillstreamError] = []
        self.stable: list[int] = []
        self.answers: dict[tuple[int, int], list[MillstreamError | None]] = {}
        self.order: dict[int, list[int]] = {}
        self.next: dict[int, int] = {}
        self.committer = Committer(
            place.engine, STAMP, self.clock, self.posted.append, self.posted.append, self,
            Limits(**limits),
        )  # fmt: skip

    def on_synced(self, position: int) -> None:
        self.stable.append(position)

    def on_failed(self, error: MillstreamError) -> None:
        self.failed.append(error)

    def on_pressure(self, is_held: bool) -> None:
        """Nobody publishes here."""

    def submit(self, log: int, sync: bool = False, size: int = 1, at_once: bool = False) -> None:
        seq = self.next[log] = self.next.get(log, 0) + 1
        batch = Batch()
        batch.add(b"s", b"", b"", b"x" * size)
        data = encode_batch(batch, 0, 1, log, seq, 1, None, 0, False)
        self.answers[log, seq] = []
        told = partial(self.answered, log, seq, sync)
        self.committer.submit(Submission(log, seq, 1, data, sync, told), at_once)

    def answered(self, log: int, seq: int, sync: bool, error: MillstreamError | None) -> None:
        self.answers[log, seq].append(error)
        if error is None:
            self.order.setdefault(log, []).append(seq)
            at = self.position_of(log, seq)
            assert set(range(1, at + 1)) <= set(self.place.held()), "something before it is missing"
            assert not sync or at <= self.place.engine.synced_position

    def position_of(self, log: int, seq: int) -> int:
        (found,) = [at for at, each in self.stored() if each == (log, seq)]
        return found

    def stored(self) -> list[tuple[int, tuple[int, int]]]:
        """Return the position of every record that the engine holds, as (log, seq)."""
        found = []
        for position, data in sorted(self.place.held().items()):
            one = decode_entry(memoryview(data), 0)
            if one is None:
                continue
            for run in one.runs:
                found += [(position, (run.stream_id, run.first_seq + i)) for i in range(run.frames)]
        return found

    def run(self, choices: Callable[[int], int] = lambda most: 0) -> None:
        """Let everybody act until nothing is left to do; time passes where nothing else does."""
        engine = self.place.engine
        for _ in range(5000):
            while self.posted:
                self.posted.popleft()()
            if isinstance(engine, ScriptedEngine) and engine.answer_one(choices(8)):
                continue
            if self.committer.step() or self.posted:
                continue
            if all(self.answers.values()):
                return
            self.clock.advance(LONGEST_PAUSE)
        raise AssertionError("no end")


def test_records_are_in_the_log_before_they_are_acknowledged_and_in_order(place: Place) -> None:
    rig = Rig(place, entry_bytes=500)
    for step in range(30):
        rig.submit(1 + step % 3, sync=step % 4 == 0, size=100, at_once=step % 5 == 0)
        if step % 7 == 0:
            rig.run()
    rig.run()
    assert set(map(tuple, rig.answers.values())) == {(None,)}
    assert all(seqs == sorted(seqs) for seqs in rig.order.values())
    assert sorted(each for _, each in rig.stored()) == sorted(rig.answers)


def test_a_lone_write_is_committed_inside_of_the_call(place: Place) -> None:
    place.engine.begin([])
    place.engine.prepare(0.0)
    rig = Rig(place)
    rig.submit(1, at_once=True)
    assert rig.answers == {(1, 1): [None]}
    rig.submit(1)
    assert rig.answers[1, 2] == []


@pytest.mark.parametrize("fault", FAULTS)
def test_an_entry_that_goes_astray_is_sent_again_at_its_position(fault: str) -> None:
    engine = ScriptedEngine([AT_ONCE, fault, fault, AT_ONCE])
    rig = Rig(Place(engine, lambda: engine.entries), entry_bytes=100)
    for _ in range(4):
        rig.submit(1, sync=True, size=100)
    rig.run()
    assert [answer for (answer,) in rig.answers.values()] == [None] * 4
    assert rig.order == {1: [1, 2, 3, 4]}
    assert sorted(engine.entries) == [1, 2, 3, 4]
    again = fault in (FORGOTTEN, LOST, LANDED)
    assert (engine.asked.count(2) > 1) == again


def test_an_answer_to_a_later_entry_answers_nobody_before_those_in_front_of_it() -> None:
    engine = ScriptedEngine([LATE, LATE, LATE])
    rig = Rig(Place(engine, lambda: engine.entries), entry_bytes=100)
    for _ in range(3):
        rig.submit(1, size=100)
    while rig.posted:
        rig.posted.popleft()()
    rig.committer.step()
    engine.answer_one(2)
    engine.answer_one(1)
    while rig.posted:
        rig.posted.popleft()()
    assert rig.order == {}
    rig.run()
    assert rig.order == {1: [1, 2, 3]}


def test_no_more_is_sent_than_the_engine_lets_be_under_way() -> None:
    engine = ScriptedEngine([SLOW] * 50, ahead=3)
    rig = Rig(Place(engine, lambda: engine.entries), entry_bytes=100)
    for _ in range(20):
        rig.submit(1, size=100)
    rig.run()  # the engine checks it
    assert rig.order == {1: list(range(1, 21))}


def test_a_log_that_another_writer_has_taken_ends_this_one() -> None:
    engine = ScriptedEngine([AT_ONCE, TAKEN])
    rig = Rig(Place(engine, lambda: engine.entries), entry_bytes=100)
    for _ in range(4):
        rig.submit(1, size=100)
    rig.run()
    answers = [answer for (answer,) in rig.answers.values()]
    assert answers[0] is None
    assert all(isinstance(answer, ShardReadOnly) for answer in answers[1:])
    with pytest.raises(ShardReadOnly, match="another writer has taken the log"):
        rig.committer.check()
    assert len(rig.failed) == 1
    asked = len(engine.asked)
    rig.submit(1)
    rig.run()
    assert isinstance(rig.answers[1, 5][0], ShardReadOnly)
    assert len(engine.asked) == asked


def test_a_taken_position_that_is_told_late_fails_everything_that_was_not_confirmed() -> None:
    engine = ScriptedEngine([LATE, SLOW, SLOW], ahead=3)
    engine.entries[2] = b"another writer's"
    rig = Rig(Place(engine, lambda: engine.entries), entry_bytes=100)
    for _ in range(3):
        rig.submit(1, sync=True, size=100)
    rig.run()
    kinds = [type(answer) for (answer,) in rig.answers.values()]
    assert kinds == [type(None), ShardReadOnly, ShardReadOnly]


class Draws:
    """Hypothesis' choices, one at a time."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def __call__(self, most: int) -> int:
        return self._data.draw(st.integers(0, most - 1))


@settings(max_examples=count(100, 3000), deadline=None)
@given(
    script=st.lists(st.sampled_from([AT_ONCE, *FAULTS]), max_size=20),
    work=st.lists(st.tuples(st.integers(1, 2), st.booleans(), st.booleans()), max_size=15),
    ahead=st.integers(1, 4),
    data=st.data(),
)
def test_whatever_the_engine_does_every_record_is_answered_once_and_in_order(
    script: list[str], work: list[tuple[int, bool, bool]], ahead: int, data: st.DataObject
) -> None:
    engine = ScriptedEngine(script, ahead)
    rig = Rig(Place(engine, lambda: engine.entries), entry_bytes=150)
    draws = Draws(data)
    for log, sync, at_once in work:
        rig.submit(log, sync, size=100, at_once=at_once)
        if draws(3) == 0:
            rig.committer.step()
    rig.run(draws)
    assert all(answer == [None] for answer in rig.answers.values())
    assert all(seqs == list(range(1, len(seqs) + 1)) for seqs in rig.order.values())
    assert sorted(each for _, each in rig.stored()) == sorted(rig.answers)
    assert sorted(engine.entries) == list(range(1, engine.position))


def test_a_stop_waits_for_what_is_under_way() -> None:
    engine = ScriptedEngine([SLOW])
    rig = Rig(Place(engine, lambda: engine.entries))
    rig.submit(1, sync=True)
    rig.committer.step()
    posted, rig.committer._wake.wait = rig.posted, lambda seconds: engine.answer_one()  # type: ignore[method-assign,assignment,return-value]
    rig.committer.stop()
    while posted:
        posted.popleft()()
    assert rig.answers == {(1, 1): [None]}


def test_a_stop_does_not_wait_for_ever() -> None:
    engine = ScriptedEngine([FORGOTTEN] * 100)
    rig = Rig(Place(engine, lambda: engine.entries))
    rig.submit(1, sync=True)
    rig.committer.step()
    rig.committer._wake.wait = lambda seconds: rig.clock.advance(1.0)  # type: ignore[method-assign,assignment,return-value]
    rig.committer.stop()
    while rig.posted:
        rig.posted.popleft()()
    assert isinstance(rig.answers[1, 1][0], ShardReadOnly)


# --- positions


def test_a_position_of_which_nothing_is_known_is_asked_for_after_a_pause_that_grows() -> None:
    positions, now, pauses = Positions(1, 4), 0.0, []
    assert positions.give((b"a",), now)
    for _ in range(12):
        positions.doubted(1, now)
        due = positions.next_due()
        assert due is not None
        pauses.append(round(due - now, 3))
        now = due
        assert positions.due(now) == [(1, (b"a",))]
    assert pauses[:4] == [0.01, 0.02, 0.04, 0.08]
    assert pauses[-1] == LONGEST_PAUSE


def test_an_entry_without_an_answer_is_sent_again_in_the_end() -> None:
    positions = Positions(1, 4)
    positions.give((b"a",), 0.0)
    assert positions.due(PATIENCE - 0.1) == []
    assert positions.due(PATIENCE) == [(1, (b"a",))]
    assert positions.due(PATIENCE) == []


def test_an_entry_beyond_the_window_is_sent_once_there_is_room() -> None:
    positions = Positions(5, 1)
    assert positions.give((b"a",), 0.0)
    assert not positions.give((b"b",), 0.0)
    assert positions.is_full
    assert positions.due(0.0) == []
    assert positions.answered(5, OK)
    assert positions.due(0.0) == [(6, (b"b",))]
    assert positions.answered(6, OK)
    assert not positions.answered(6, OK)  # twice
    assert (positions.confirmed, positions.under_way, positions.is_full) == (6, {}, False)
