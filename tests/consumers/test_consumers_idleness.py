from millstream.clock import ManualClock
from millstream.consumers.idleness import Idleness
from millstream.delivery.timers import Timers


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.in_use = False
        self.ends = 0
        self.idleness = Idleness(self.timers, self.clock, lambda: self.in_use, self.ended)

    def ended(self) -> None:
        self.ends += 1

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.timers.run_due()


def test_it_ends_once_the_threshold_has_passed_since_the_last_use():
    world = World()
    world.idleness.watch(5)
    world.advance(4)
    world.idleness.used()
    world.advance(4)
    assert world.ends == 0
    world.advance(1)
    assert world.ends == 1


def test_what_is_in_use_does_not_end_and_its_end_of_use_starts_the_time():
    world = World()
    world.in_use = True
    world.idleness.watch(5)
    world.advance(7)
    world.in_use = False
    world.idleness.used()
    world.advance(4.9)
    assert world.ends == 0
    world.advance(0.2)
    assert world.ends == 1


def test_without_a_threshold_nothing_ends():
    world = World()
    world.idleness.watch(5)
    world.idleness.watch(0)
    world.advance(100)
    assert world.ends == 0


def test_what_may_be_at_work_does_not_end_until_it_is_late_for_the_threshold():
    world = World()
    busy = [world.clock.monotonic() + 30]
    used = Idleness(world.timers, world.clock, lambda: False, world.ended, lambda: busy[0])
    used.watch(5)
    world.advance(6)
    world.advance(28)
    assert world.ends == 0
    world.advance(1.1)
    assert world.ends == 1


def test_an_answer_ends_the_time_for_work():
    world = World()
    busy = [world.clock.monotonic() + 30]
    used = Idleness(world.timers, world.clock, lambda: False, world.ended, lambda: busy[0])
    used.watch(5)
    world.advance(6)
    busy[0] = 0.0
    used.used()
    world.advance(4.9)
    assert world.ends == 0
    world.advance(0.2)
    assert world.ends == 1
