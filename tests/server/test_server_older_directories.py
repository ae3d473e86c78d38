"""What an earlier version wrote is opened by this one: nothing is lost, nothing comes back.

The directories below ``tests/fixtures`` were made by ``support.older.make`` with the version that
names their folder. A new format gets a folder of its own beside them; the old ones stay.
"""

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from support.older.opened import OPENINGS
from support.older.place import unpack

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures").iterdir())


@pytest.mark.parametrize("part", OPENINGS)
@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: str(path.name))
def test_a_directory_of_an_earlier_version_shows_what_it_showed_then(
    fixture: Path, part: str, tmp_path: Path
) -> None:
    expected = json.loads((fixture / "expected.json").read_text())
    opening = OPENINGS[part]
    opened = opening.open(unpack(fixture, tmp_path, opening.parts), expected["held"])
    found = json.loads(json.dumps(opened))
    wanted = resolved(expected, part)
    assert list(differences(wanted, found)) == []


def resolved(expected: dict[str, Any], part: str) -> Any:
    """Return what is expected of a part, with the streams that are as in the data directory."""
    wanted = expected[part]
    if not find_spec("pyarrow"):  # the one thing that needs it
        wanted.pop("twins", None)
    for user, streams in wanted["streams"].items():
        for name, stream in streams.items():
            if stream == "as in data":
                streams[name] = expected["data"]["streams"][user][name]
    return wanted


def differences(wanted: Any, found: Any, where: str = "") -> Iterator[str]:
    """Name what is missing or different; what a later version tells in addition does not count."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, part in wanted.items():
            yield from differences(part, found.get(key), f"{where}/{key}")
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for at, part in enumerate(wanted):
            yield from differences(part, found[at], f"{where}/{at}")
    elif wanted != found:
        yield f"{where}: {str(found)[:300]} instead of {str(wanted)[:300]}"
