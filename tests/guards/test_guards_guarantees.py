"""Every promise on the page of guarantees names a test, and that test is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/guarantees.md").read_text()
ROW = re.compile(r"^\| (.+?) \| `(tests/[\w/]+\.py)::(test_\w+)` \|$", re.MULTILINE)
HEADING = "## What proves each promise"


def rows() -> list[tuple[str, str, str]]:
    return ROW.findall(PAGE[PAGE.index(HEADING) :])


def is_there(file: str, test: str) -> bool:
    path = ROOT / file
    return path.exists() and re.search(rf"def {test}\(", path.read_text()) is not None


def test_each_promise_names_a_test_that_is_there() -> None:
    assert len(rows()) >= 30
    assert [(file, test) for _, file, test in rows() if not is_there(file, test)] == []


def test_each_row_of_the_table_is_a_promise_with_a_test() -> None:
    table = [line for line in PAGE[PAGE.index(HEADING) :].splitlines() if line.startswith("| ")]
    assert len(table) - 1 == len(rows())  # less the heading
