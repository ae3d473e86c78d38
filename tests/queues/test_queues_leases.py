"""Leases as a state machine: rules one by one, then against a model that computes everything."""

from bisect import bisect_left
from dataclasses import dataclass, field

import hypothesis.strategies as st
import msgspec
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millstream.queues import lease_events
from millstream.queues.lease_events import Claim, Claimed, DeadLettered, Extended, Released
from millstream.queues.leases import MOST_POISON, Claimer, Leases


class Numbers:
    """Jobs that are nothing but their sequences."""

    def __init__(self, *seqs: int, size: int = 1) -> None:
        self.seqs = sorted(seqs)
        self._size = size

    def next_live(self, seq: int) -> int:
        at = bisect_left(self.seqs, seq)
        return self.seqs[at] if at < len(self.seqs) else 0

    def size(self, seq: int) -> int:
        return self._size

    def ready_at_ms(self, seq: int) -> int:
        return 0


def claim(
    leases: Leases,
    jobs: Numbers,
    wanted: int = 1,
    *,
    now: int = 0,
    lease: int = 100,
    node: str = "a",
) -> list[int]:
    claimer = Claimer(node, wanted)
    leases.hand_out([claimer], jobs, now, lease)
    return [granted.seq for granted in claimer.granted]


def test_the_first_lease_has_id_one_and_the_first_delivery() -> None:
    leases, claimer = Leases(), Claimer("a", 2)
    leases.hand_out([claimer], Numbers(4, 7), 1000, 50)
    assert [(g.seq, g.lease_id, g.deadline_ms, g.deliveries) for g in claimer.granted] == [
        (4, 1, 1050, 1),
        (7, 2, 1050, 1),
    ]


def test_a_lease_holds_at_its_deadline_and_is_over_right_after() -> None:
    leases, jobs = Leases(), Numbers(1)
    assert claim(leases, jobs, now=0, lease=100) == [1]
    leases.sweep(100)
    assert leases.in_flight == 1
    leases.sweep(101)
    assert leases.in_flight == 0
    assert claim(leases, jobs, now=101) == [1]
    assert leases.deliveries == {1: 2}


def test_what_came_back_goes_before_what_was_never_claimed() -> None:
    leases, jobs = Leases(), Numbers(1, 2, 3, 4)
    claim(leases, jobs, 3)
    leases.nack(3, "a", None, 0)
    leases.nack(1, "a", None, 0)
    assert claim(leases, jobs, 3) == [1, 3, 4]


def test_only_the_holder_with_the_current_token_is_believed() -> None:
    leases, jobs = Leases(), Numbers(1)
    claim(leases, jobs, node="a", lease=10)
    leases.sweep(11)
    claim(leases, jobs, now=11, node="a", lease=10)  # the same node again, under lease 2
    assert not leases.ack(1, "b", None)
    assert not leases.ack(1, "a", 1)
    assert not leases.extend(1, "a", 1, 500)
    assert not leases.nack(1, "a", 1, 0)
    assert leases.ack(1, "a", 2)
    assert not leases.ack(1, "a", 2)


def test_a_delay_hides_the_job_until_it_is_over() -> None:
    leases, jobs = Leases(), Numbers(1)
    claim(leases, jobs)
    leases.nack(1, "a", None, 50)
    leases.sweep(49)
    assert (claim(leases, jobs), leases.delayed) == ([], 1)
    leases.sweep(50)
    assert (claim(leases, jobs), leases.delayed) == ([1], 0)


def test_extending_sets_the_deadline_and_can_shorten_it() -> None:
    leases, jobs = Leases(), Numbers(1)
    claim(leases, jobs, lease=100)
    assert leases.extend(1, "a", None, 20)
    leases.sweep(21)
    assert leases.in_flight == 0


def test_many_extensions_do_not_pile_up() -> None:
    leases, jobs = Leases(), Numbers(1)
    claim(leases, jobs)
    for deadline in range(200, 10_000):
        leases.extend(1, "a", None, deadline)
    assert len(leases._deadlines) < 100
    leases.sweep(9_999)
    assert leases.in_flight == 1


def test_long_leases_of_jobs_that_were_finished_soon_do_not_pile_up() -> None:
    leases, day = Leases(), 86_400_000
    for seq in range(1, 1000):
        assert claim(leases, Numbers(seq), now=seq, lease=day) == [seq]
        assert leases.ack(seq, "a", None)
        leases.gone([seq])
    assert len(leases._deadlines) < 100
    assert claim(leases, Numbers(1000, 1001), 2, now=1000, lease=10) == [1000, 1001]
    leases.sweep(1011)
    assert leases.in_flight == 0


def test_long_delays_of_jobs_that_went_do_not_pile_up() -> None:
    leases, day = Leases(), 86_400_000
    for seq in range(1, 1000):
        claim(leases, Numbers(seq))
        leases.nack(seq, "a", None, day + seq)
        leases.forget(seq)
    assert len(leases._ready_times) < 100
    claim(leases, Numbers(1000))
    leases.nack(1000, "a", None, day)
    leases.sweep(day)
    assert (leases.delayed, claim(leases, Numbers(1000))) == (0, [1000])


def test_claimers_take_turns_until_each_has_enough() -> None:
    leases = Leases()
    claimers = [Claimer("a", 1), Claimer("b", 3), Claimer("c", 2)]
    leases.hand_out(claimers, Numbers(*range(1, 6)), 0, 100)
    assert [[g.seq for g in c.granted] for c in claimers] == [[1], [2, 4], [3, 5]]


def test_a_claim_ends_at_its_bytes_but_always_gets_one() -> None:
    leases, claimer = Leases(), Claimer("a", 10, room_bytes=15)
    leases.hand_out([claimer], Numbers(1, 2, 3, size=10), 0, 100)
    assert [g.seq for g in claimer.granted] == [1, 2]
    lone = Claimer("a", 10, room_bytes=5)
    leases.hand_out([lone], Numbers(3, size=10), 0, 100)
    assert [g.seq for g in lone.granted] == [3]


def test_a_job_delivered_too_often_is_set_aside_and_the_claim_goes_on() -> None:
    leases, jobs = Leases(), Numbers(1, 2)
    for _ in range(2):
        claim(leases, jobs)
        leases.nack(1, "a", None, 0)
    claimer = Claimer("a", 1)
    assert leases.hand_out([claimer], jobs, 0, 100, max_deliveries=2) == [1]
    assert [g.seq for g in claimer.granted] == [2]
    assert leases.leaving == {1}
    leases.put_back([1])
    assert leases.deliveries[1] == 2
    assert leases.hand_out([Claimer("a", 1)], jobs, 0, 100, max_deliveries=2) == [1]
    leases.gone([1])
    assert leases.known() == {2}


def test_one_pass_sets_a_bounded_number_aside() -> None:
    leases, jobs = Leases(), Numbers(*range(1, 200))
    claim(leases, jobs, 199)
    leases.sweep(101)
    assert len(leases.hand_out([Claimer("a", 1)], jobs, 101, 1, 1)) == MOST_POISON


def test_a_connection_gives_back_its_own_leases_only() -> None:
    leases, jobs = Leases(), Numbers(1, 2, 3)
    leases.hand_out([Claimer("a", 2, connection=9)], jobs, 0, 100)
    assert claim(leases, jobs, node="a") == [3]
    assert leases.held_by(9) == 2
    assert leases.release(9) == [1, 2]
    assert (leases.held_by(9), sorted(leases.held)) == (0, [3])
    assert leases.release(9) == []


def test_grants_that_reached_nobody_count_no_delivery() -> None:
    leases, jobs, claimer = Leases(), Numbers(1), Claimer("a", 1)
    leases.hand_out([claimer], jobs, 0, 100)
    leases.undo([claimer])
    assert (leases.deliveries, leases.in_flight, claimer.granted) == ({}, 0, [])
    assert claim(leases, jobs) == [1]


def test_a_job_that_vanished_is_forgotten() -> None:
    leases = Leases()
    claim(leases, Numbers(1, 2), 2)
    leases.nack(1, "a", None, 0)
    assert claim(leases, Numbers(2)) == []
    leases.forget(2)
    assert leases.known() == set()


def test_restored_leases_hold_and_the_rest_is_claimable_from_the_start() -> None:
    before, jobs = Leases(), Numbers(*range(1, 7))
    claim(before, jobs, 4, node="a")
    before.hand_out([Claimer("b", 1, connection=5)], jobs, 0, 100)
    before.nack(1, "a", None, 0)
    before.nack(2, "a", None, 60)
    before.ack(3, "a", None)
    before.gone([3])
    saved = msgspec.json.decode(
        msgspec.json.encode(before.projection()), type=lease_events.Projection
    )
    after = Leases(2)
    after.restore(saved)
    after.end_replay()
    assert {seq: lease.node for seq, lease in after.held.items()} == {4: "a"}
    assert after.deliveries == {1: 1, 2: 1, 4: 1, 5: 1}  # 5 was pushed to a connection
    granted = Claimer("c", 9)
    after.hand_out([granted], Numbers(1, 2, 4, 5, 6), 10, 100)
    assert [(g.seq, g.lease_id, g.deliveries) for g in granted.granted] == [
        (1, 6, 2),
        (5, 7, 2),
        (6, 8, 1),
    ]


def test_a_delay_on_a_pushed_job_outlives_the_process_that_pushed_it() -> None:
    leases = Leases()
    leases.apply(Claimed("a", [Claim(1, 1, 100, 1), Claim(2, 2, 100, 1)], pushed=True))
    leases.apply(Released([(1, 1)], 500))
    leases.end_replay()
    assert (leases.in_flight, leases.delayed) == (0, 1)
    assert claim(leases, Numbers(1, 2), 5, now=10) == [2]


def test_events_replay_to_the_state_that_logged_them_and_twice_is_as_good() -> None:
    events = [
        Claimed("a", [Claim(1, 1, 100, 1), Claim(2, 2, 100, 1), Claim(3, 3, 100, 1)]),
        Released([(1, 1)]),
        Released([(2, 2)], 500),
        Claimed("b", [Claim(1, 4, 200, 2)]),
        Released([(1, 1)]),  # late, about a lease that is no more
        Extended([(3, 3)], 900),
        DeadLettered(7),
    ]
    bodies = [msgspec.json.encode(event) for event in events]
    once, twice = Leases(), Leases()
    for body in bodies:
        once.apply(lease_events.decode(body))
    for body in bodies + bodies:
        twice.apply(lease_events.decode(body))
    assert {s: (v.node, v.lease_id, v.deadline_ms) for s, v in once.held.items()} == {
        1: ("b", 4, 200),
        3: ("a", 3, 900),
    }
    assert once.projection() == twice.projection()
    assert once.projection().delayed == [(2, 500)]
    assert once.dead_lettered == 7


@dataclass
class Held:
    """One job in the model: nothing is kept but what the rules mention."""

    deliveries: int = 0
    node: str = ""
    lease_id: int = 0
    deadline: int = 0
    connection: int = 0
    ready_at: int = 0
    leaving: bool = False


@dataclass
class Model:
    """Every rule by looking at every job."""

    jobs: dict[int, Held] = field(default_factory=dict)
    next_id: int = 1

    def sweep(self, now: int) -> None:
        for job in self.jobs.values():
            if job.node and job.deadline < now:
                job.node = ""
            if job.ready_at and job.ready_at <= now:
                job.ready_at = 0

    def ready(self) -> list[int]:
        """Return what is claimable; whatever came back is below all that never was claimed."""
        return sorted(
            seq
            for seq, job in self.jobs.items()
            if not job.node and not job.ready_at and not job.leaving
        )


class LeasesAgainstModel(RuleBasedStateMachine):
    """The real thing and the model go through the same calls and must always agree."""

    @initialize(limit=st.sampled_from([0, 1, 2, 3]))
    def begin(self, limit: int) -> None:
        self.limit = limit
        self.now = 1000
        self.last_seq = 0
        self.leases = Leases()
        self.model = Model()

    def numbers(self) -> Numbers:
        return Numbers(*self.model.jobs)

    @rule(count=st.integers(1, 4), hole=st.booleans())
    def append(self, count: int, hole: bool) -> None:
        self.last_seq += hole
        for _ in range(count):
            self.last_seq += 1
            self.model.jobs[self.last_seq] = Held()

    @rule(milliseconds=st.integers(0, 60))
    def pass_time(self, milliseconds: int) -> None:
        self.now += milliseconds
        self.leases.sweep(self.now)
        self.model.sweep(self.now)

    @rule(
        demands=st.lists(
            st.tuples(st.sampled_from("ab"), st.integers(1, 4)), min_size=1, max_size=3
        ),
        lease=st.integers(1, 50),
        connection=st.integers(0, 2),
    )
    def claim(self, demands: list[tuple[str, int]], lease: int, connection: int) -> None:
        claimers = [Claimer(node, wanted, connection) for node, wanted in demands]
        poison = self.leases.hand_out(claimers, self.numbers(), self.now, lease, self.limit)
        expected: list[list[int]] = [[] for _ in demands]
        doomed, turn = [], list(range(len(demands)))
        for seq in self.model.ready():
            if not turn:
                break
            job = self.model.jobs[seq]
            if self.limit and job.deliveries >= self.limit:
                job.leaving = True
                doomed.append(seq)
                continue
            who = turn.pop(0)
            job.deliveries += 1
            job.node, job.lease_id = demands[who][0], self.model.next_id
            job.deadline, job.connection = self.now + lease, connection
            self.model.next_id += 1
            expected[who].append(seq)
            if len(expected[who]) < demands[who][1]:
                turn.append(who)
        assert poison == doomed
        assert [[g.seq for g in claimer.granted] for claimer in claimers] == expected
        for claimer in claimers:
            for granted in claimer.granted:
                job = self.model.jobs[granted.seq]
                assert granted.lease_id == job.lease_id
                assert granted.deliveries == job.deliveries
                assert granted.deadline_ms == job.deadline

    def pick(self, at: int) -> int:
        return sorted(self.model.jobs)[at % len(self.model.jobs)]

    @precondition(lambda self: self.model.jobs)
    @rule(
        at=st.integers(0, 50),
        node=st.sampled_from("ab"),
        token=st.sampled_from(["none", "right", "wrong"]),
        what=st.sampled_from(["ack", "nack", "delay", "extend"]),
        length=st.integers(1, 50),
    )
    def answer(self, at: int, node: str, token: str, what: str, length: int) -> None:
        seq = self.pick(at)
        job = self.model.jobs[seq]
        given = {"none": None, "right": job.lease_id, "wrong": job.lease_id + 1}[token]
        valid = job.node == node and token != "wrong"
        if what == "ack":
            assert self.leases.ack(seq, node, given) == valid
            if valid:
                job.node, job.leaving = "", True
        elif what == "extend":
            assert self.leases.extend(seq, node, given, self.now + length) == valid
            if valid:
                job.deadline = self.now + length
        else:
            ready_at = self.now + length if what == "delay" else 0
            assert self.leases.nack(seq, node, given, ready_at) == valid
            if valid:
                job.node, job.ready_at = "", ready_at

    @rule(connection=st.integers(1, 2))
    def disconnect(self, connection: int) -> None:
        released = self.leases.release(connection)
        expected = []
        for seq, job in sorted(self.model.jobs.items()):
            if job.node and job.connection == connection:
                expected.append(seq)
                job.node = ""
        assert released == expected

    @rule(works=st.booleans())
    def finish_leaving(self, works: bool) -> None:
        leaving = [seq for seq, job in self.model.jobs.items() if job.leaving]
        if works:
            self.leases.gone(leaving)
            for seq in leaving:
                del self.model.jobs[seq]
        else:
            self.leases.put_back(leaving)
            for seq in leaving:
                self.model.jobs[seq].leaving = False

    @precondition(lambda self: self.model.jobs)
    @rule(at=st.integers(0, 50))
    def vanish(self, at: int) -> None:
        seq = self.pick(at)
        if not self.model.jobs[seq].leaving:
            del self.model.jobs[seq]
            self.leases.forget(seq)

    @rule()
    def restart(self) -> None:
        """Leave the process with nothing under way and come back from the projection."""
        self.finish_leaving(works=True)
        saved = msgspec.json.encode(self.leases.projection())
        self.leases = Leases()
        self.leases.restore(msgspec.json.decode(saved, type=lease_events.Projection))
        self.leases.end_replay()
        for job in self.model.jobs.values():
            if job.connection:
                job.node, job.connection = "", 0

    @invariant()
    def counters_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        jobs = self.model.jobs.values()
        assert self.leases.in_flight == sum(1 for job in jobs if job.node)
        assert self.leases.delayed == sum(1 for job in jobs if job.ready_at)
        assert self.leases.leaving == {s for s, job in self.model.jobs.items() if job.leaving}
        times = [job.deadline + 1 for job in jobs if job.node]
        times += [job.ready_at for job in jobs if job.ready_at]
        assert self.leases.next_change_ms() == min(times, default=None)
        for connection in (1, 2):
            held = sum(1 for job in jobs if job.node and job.connection == connection)
            assert self.leases.held_by(connection) == held


TestLeasesAgainstModel = LeasesAgainstModel.TestCase
TestLeasesAgainstModel.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
