"""Directories that some version wrote, opened by this one: what both doors show of them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from support.older.contents import buckets, contents, goes_on, topics, twins
from support.older.place import Doors, Place, run, serving

USERS = ("main", "lab")


def opened_cold(place: Place, held: dict[str, Any]) -> dict[str, Any]:
    """Start over the data directory and its cold place."""
    found = {"twins": twins(place.cold)} if find_spec("pyarrow") else {}
    with serving(place, place.data, held["made_ns"], token=held["tokens"][0]) as doors:
        found |= _everything(doors)
        found["goes_on"] = asyncio.run(goes_on(doors, held))
    with serving(place, place.data, held["made_ns"], token=held["tokens"][0]) as doors:
        found["after"] = asyncio.run(contents(doors, USERS, brief=True))
    return found


def opened_restored(place: Place, held: dict[str, Any]) -> dict[str, Any]:
    """Restore the backup and start over it."""
    run(held["made_ns"], "restore", str(place.backups), str(place.data))
    with serving(place, place.data, held["made_ns"], token=held["tokens"][0]) as doors:
        return _everything(doors)


def opened_sealed(place: Place, held: dict[str, Any]) -> dict[str, Any]:
    """Start over the encrypted directory."""
    with serving(place, place.sealed, held["made_ns"]) as doors:
        found = {"streams": asyncio.run(contents(doors, USERS[:1])), "http": topics(doors)}
    return found


def _everything(doors: Doors) -> dict[str, Any]:
    return {
        "streams": asyncio.run(contents(doors, USERS)),
        "http": topics(doors),
        "buckets": asyncio.run(buckets(doors)),
    }


@dataclass(frozen=True, slots=True)
class Opening:
    """A way to open directories: what it needs of them, and how it is done."""

    parts: tuple[str, ...]
    open: Callable[[Place, dict[str, Any]], dict[str, Any]]


OPENINGS = {
    "data": Opening(("data", "cold"), opened_cold),
    "restored": Opening(("backups", "cold"), opened_restored),
    "sealed": Opening(("sealed",), opened_sealed),
}
