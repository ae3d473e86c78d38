"""When answers are confirmed and deliveries go, seen by what was written down until then."""

from collections.abc import Callable

from millstream.consumers.config import ConsumerConfig
from millstream.consumers.consumer import Consumer
from millstream.consumers.registry import Registry
from millstream.consumers.state import CONSUMER_STATE
from millstream.errors import MillstreamError, StorageFull
from millstream.store.recovery.recovery import Control
from millstream.streams.config.config import StreamConfig
from streams.streams_fakes import FakeStore, World, batch_of

ACK = b"$JS.ACK.S.C."
Done = Callable[[MillstreamError | None], None]


class SlowStore(FakeStore):
    """Answers what is written of consumers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[tuple[Control, Done]] = []

    def control(self, kind: int, log_id: int, body: bytes, done: Done, sync: bool = True) -> None:
        if kind != CONSUMER_STATE:
            super().control(kind, log_id, body, done, sync)
            return
        self.waiting.append((Control(kind, log_id, body, 0), done))
        self.synced.append(sync)

    def settle(self, error: MillstreamError | None = None) -> None:
        """Answer everything so far; what failed is not there after a restart."""
        waiting, self.waiting = self.waiting, []
        for control, done in waiting:
            if error is None:
                self.controls.append(control)
            done(error)


class Served:
    """A stream of three records with one consumer, over a slow store."""

    def __init__(self, world: World, store: SlowStore, registry: Registry, made: Consumer) -> None:
        self.world, self.store, self.registry, self.consumer = world, store, registry, made

    def pull(self, batch: int) -> list[tuple[bytes, bytes]]:
        """Ask for messages; returns what came as (route, ack subject)."""
        self.consumer.pump.request(b"inbox", b'{"batch":%d,"no_wait":true}' % batch)
        self.consumer.pump.run()
        return self.came()

    def came(self) -> list[tuple[bytes, bytes]]:
        return [(route, reply) for route, reply, *_ in self.world.hub.take()]

    def answer(self, seq: int, body: bytes = b"", reply: bytes = b"") -> None:
        subject = ACK + b"1.%d.%d.1.0" % (seq, seq)
        self.consumer.answers.deliver(batch_of((subject, reply, b"", body)))

    async def restarted(self) -> Consumer:
        """The consumer as a start finds it over what was written until now."""
        kept = self.store.controls
        world = World(self.store)
        world.catalog.replay(None, kept)
        registry = _registry(world, self.store)
        registry.replay(None, kept)
        return registry.get(world.catalog.get("S"), "C")


def _registry(world: World, store: SlowStore) -> Registry:
    interests = {"$G": world.interest}
    return Registry(world.catalog, store, world.clock, world.timers, world.hub, interests)  # type: ignore[arg-type]


async def served(**config: object) -> Served:
    store = SlowStore()
    world = World(store)
    registry = _registry(world, store)
    stream, _ = await world.catalog.create(StreamConfig.from_request({"name": "S"}))
    stream.deliver(batch_of(*[(b"S", b"", b"", b"x")] * 3))
    asked = {"durable_name": "C", "ack_policy": "explicit", **config}
    made, _ = await registry.create(stream, ConsumerConfig.from_request(asked, stream.config))
    world.hub.take()
    return Served(world, store, registry, made)


def pending(consumer: Consumer) -> list[int]:
    return consumer.ledger.pending.up_to(100)


async def test_an_ack_is_confirmed_once_it_is_synced_and_not_before():
    here = await served()
    assert len(here.pull(3)) == 3
    here.answer(1, reply=b"confirm")
    assert (here.came(), here.store.synced[-1]) == ([], True)
    here.store.settle()
    assert here.came() == [(b"confirm", b"")]
    assert pending(await here.restarted()) == [2, 3]


async def test_an_ack_that_repeats_one_on_its_way_is_confirmed_no_earlier():
    here = await served()
    here.pull(3)
    here.answer(2, reply=b"first")
    here.answer(2, reply=b"again")
    assert here.came() == []
    here.store.settle()
    assert here.came() == [(b"first", b""), (b"again", b"")]
    here.answer(2, reply=b"once more")  # it is on disk: nothing to wait for
    assert here.came() == [(b"once more", b"")]


async def test_an_ack_that_repeats_one_written_without_a_sync_waits_for_one():
    here = await served()
    here.pull(3)
    here.answer(2)
    here.world.advance(1)  # written in the background
    here.store.settle()
    here.answer(2, reply=b"confirm")
    assert (here.came(), here.store.synced[-1]) == ([], True)
    here.store.settle()
    assert here.came() == [(b"confirm", b"")]


async def test_a_confirmed_ack_of_something_delivered_again_is_kept():
    """What was written as pending and delivered again since is written as answered."""
    here = await served()
    here.pull(3)
    here.world.advance(1)
    here.store.settle()
    here.answer(2, b"-NAK")
    (ack,) = [reply for route, reply in here.pull(1) if route == b"inbox"]
    assert ack.startswith(ACK + b"2.2.4.")  # the second delivery of the second record
    here.answer(2, reply=b"confirm")
    here.store.settle()
    assert pending(await here.restarted()) == [1, 3]


async def test_what_could_not_be_written_is_written_with_the_next():
    here = await served()
    here.pull(3)
    here.answer(2, reply=b"lost")
    here.store.settle(StorageFull("full"))
    assert here.came() == []
    here.answer(2, reply=b"again")
    here.store.settle()
    assert here.came() == [(b"again", b"")]
    assert pending(await here.restarted()) == [1, 3]


async def test_where_deliveries_are_limited_each_is_written_down_before_it_goes():
    here = await served(max_deliver=2)
    assert here.pull(2) == []
    here.store.settle()
    assert [route for route, _ in here.came()] == [b"inbox", b"inbox"]
    again = await here.restarted()
    assert [again.ledger.pending.get(seq) is not None for seq in (1, 2, 3)] == [True, True, False]


async def test_where_deliveries_are_limited_statuses_come_behind_what_is_held_back():
    here = await served(max_deliver=2)
    here.pull(5)
    assert here.came() == []
    here.store.settle()
    here.store.settle()
    routes = here.world.hub.take()
    assert [headers[:12] for _, _, headers, _ in routes] == [b"", b"", b"", b"NATS/1.0 404"]


async def test_deliveries_go_on_while_nothing_can_be_written():
    here = await served(max_deliver=2)
    here.pull(1)
    here.store.settle(StorageFull("full"))
    assert [route for route, _ in here.came()] == [b"inbox"]


async def test_what_is_held_back_goes_before_the_consumer_does():
    here = await served(max_deliver=2)
    here.pull(1)
    here.consumer.close()
    assert [route for route, _ in here.came()] == [b"inbox"]


async def test_a_delay_that_a_nak_asked_for_goes_on_after_a_restart():
    here = await served(ack_wait=30 * 10**9)
    here.pull(3)
    here.answer(1, b'-NAK {"delay": 3600000000000}', reply=b"confirm")
    here.answer(2, b'-NAK {"delay": 5000000000}')
    here.answer(3, b'-NAK {"delay": 3600000000000}')
    here.answer(3, b"+WPI")  # waits as if it had just been delivered
    here.world.advance(1)
    here.store.settle()
    assert here.came()[-1] == (b"confirm", b"")
    ledger = (await here.restarted()).ledger
    due = {seq: known[2] for seq in (1, 2, 3) if (known := ledger.pending.get(seq)) is not None}
    assert due[2] < due[3] < due[1]
    assert due[1] - due[2] == 3595.0


async def test_a_consumer_is_kept_while_what_was_pulled_may_be_answered():
    here = await served(inactive_threshold=5 * 10**9, ack_wait=30 * 10**9)
    here.pull(1)
    stream = here.world.catalog.get("S")
    for seconds, left in ((20, 1), (14, 1), (1, 1), (35, 0)):  # the wait comes once more
        here.world.advance(seconds)
        assert len(here.registry.of(stream)) == left


async def test_a_consumer_goes_once_all_it_gave_is_answered_and_nobody_asks():
    here = await served(inactive_threshold=5 * 10**9, ack_wait=30 * 10**9)
    here.pull(1)
    stream = here.world.catalog.get("S")
    here.world.advance(20)
    here.answer(1)
    for seconds, left in ((4, 1), (2, 0)):
        here.world.advance(seconds)
        assert len(here.registry.of(stream)) == left
