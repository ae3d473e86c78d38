"""Whether a store keeps its conditions: of writers that race for a name one may win (rule 7)."""

import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from millstream.errors import ObjectsFailed
from millstream.store.object_log.requests import (
    Accepted,
    Answer,
    Create,
    FoundObject,
    Get,
    ObjectPlace,
    Remove,
    Request,
)

WRITERS = 16
ROUNDS = 50
AT_ONCE = 8  # rounds; each has a name of its own, so they do not disturb each other


def probe(places: Sequence[ObjectPlace], folder: str = "probe", rounds: int = ROUNDS) -> None:
    """Raise ``ObjectsFailed`` where a store lets two writers make one object.

    Each place has a connection of its own. Every round races twice: for a new name, and for that
    name again once it was removed, which some stores check less strictly.
    """
    run = secrets.token_hex(8)
    names = [f"{folder}/{run}/{number}" for number in range(rounds)]
    together = min(AT_ONCE, rounds)
    with (
        ThreadPoolExecutor(len(places) * together) as writers,
        ThreadPoolExecutor(together) as races,
    ):
        for each in [races.submit(_round, writers, places, name) for name in names]:
            each.result()


def _round(pool: ThreadPoolExecutor, places: Sequence[ObjectPlace], name: str) -> None:
    for _ in range(2):
        _race(pool, places, name)
        _ask(places[0], Remove(name), Accepted)


def _race(pool: ThreadPoolExecutor, places: Sequence[ObjectPlace], name: str) -> None:
    bodies = [b"writer %d" % number for number in range(len(places))]
    tries = [
        pool.submit(partial(place.carry_out, Create(name, body)))
        for place, body in zip(places, bodies, strict=True)
    ]
    won = [
        body
        for body, each in zip(bodies, tries, strict=True)
        if isinstance(each.result(), Accepted)
    ]
    if len(won) > 1:
        raise ObjectsFailed(
            f"the store let {len(won)} of {len(places)} writers make the same object: it ignores "
            "If-None-Match, and a fleet on it would lose records. Use a store that keeps it "
            "(S3, GCS, Azure, MinIO, SeaweedFS 4.17 or newer)"
        )
    there = _ask(places[0], Get(name), FoundObject)
    if won and there.data != won[0]:
        raise ObjectsFailed("the store replaced an object that a writer had made for itself alone")


def _ask(
    place: ObjectPlace, request: Request, wanted: type[FoundObject] | type[Accepted]
) -> FoundObject:
    """Ask until the store gives a plain answer, a few times."""
    answer: Answer | None = None
    for _ in range(10):
        answer = place.carry_out(request)
        if isinstance(answer, wanted):
            return answer if isinstance(answer, FoundObject) else FoundObject(b"")
    raise ObjectsFailed(f"the store does not answer plainly: {answer}")
