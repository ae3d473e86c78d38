"""The walks of ARCHITECTURE.md lead through the source as it is: each hop a file and a function."""

import re
from pathlib import Path

import millstream

SOURCE = Path(millstream.__file__).parent
PAGE = (SOURCE.parents[1] / "ARCHITECTURE.md").read_text()
HOP = re.compile(r"^\| `([\w/]+\.pyx?)` \| (.+?) \|", re.MULTILINE)


def hops() -> list[tuple[str, str]]:
    """Return every file and function that the walks name."""
    walks = PAGE[PAGE.index("## The walks") :]
    return [
        (file, name.rsplit(".", 1)[-1])
        for file, named in HOP.findall(walks)
        for name in re.findall(r"`([\w.]+)`", named)
    ]


def is_there(file: str, function: str) -> bool:
    """Whether a file of the source defines a function of that name."""
    path = SOURCE / file
    if not path.exists():
        return False
    return re.search(rf"\b(def|cdef|cpdef)\b[^\n(]*\b{function}\(", path.read_text()) is not None


def test_each_hop_of_the_walks_is_a_function_in_that_file() -> None:
    assert len(hops()) > 40
    assert [hop for hop in hops() if not is_there(*hop)] == []


def test_every_file_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.pyx?)`", PAGE))
    roots = (SOURCE, SOURCE.parents[1])
    missing = [name for name in sorted(named) if not any((root / name).exists() for root in roots)]
    assert missing == []
