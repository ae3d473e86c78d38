"""How far ahead a stream in memory may count, and how often that is written down."""

import msgspec
from streams_fakes import World

from millstream.streams.config.config import StreamConfig
from millstream.streams.ephemeral_heads import (
    AHEAD,
    MOST_AHEAD,
    QUICK,
    STREAM_HEAD,
    EphemeralHeads,
    HeadWatch,
    KeptHead,
)


async def _allowed(world: World, name: str, steps: int, pause: float) -> list[int]:
    """Return how many sequences each frame allowed while a stream counted on."""
    config = StreamConfig.from_request({"name": name, "storage": "memory"})
    stream, _ = await world.catalog.create(config)
    log, ahead = world.store.logs[stream.incarnation], []
    watch = HeadWatch(stream, EphemeralHeads(world.store, world.clock), world.clock)
    for _ in range(steps):
        before = len(world.store.controls)
        log.last += AHEAD // 2 + 1
        watch.look()
        for control in world.store.controls[before:]:
            assert control.kind == STREAM_HEAD
            kept = msgspec.json.decode(control.body, type=KeptHead)
            ahead.append(kept.head - log.last)
        world.clock.advance(pause)
    return ahead


async def test_a_slow_stream_reserves_few_sequences() -> None:
    assert await _allowed(World(), "S", 5, QUICK) == [AHEAD] * 5


async def test_a_busy_stream_reserves_more_and_writes_less() -> None:
    ahead = await _allowed(World(), "S", 2000, QUICK / 1000)
    assert ahead[:3] == [AHEAD, 2 * AHEAD, 4 * AHEAD]
    assert max(ahead) == MOST_AHEAD
    assert len(ahead) < 50
