"""CONTRACT.md is true: each of its sentences has tests, and each contract test has a sentence."""

import re
from itertools import groupby
from pathlib import Path

HERE = Path(__file__).parent
LINE = re.compile(r"- (\d+)\.(\d\d) (.+?): ([\w, ]+)")
TEST = re.compile(r"^(?:async )?def test_(\w+)", re.MULTILINE)
SECTIONS = [*range(1, 12), 13]  # there is no twelfth


def sentences() -> list[tuple[int, int, str, list[str]]]:
    """Return (section, number, gist, tests) of each line; whatever looks like one must be one."""
    found = []
    for line in (HERE / "CONTRACT.md").read_text().splitlines():
        if line.startswith("- "):
            match = LINE.fullmatch(line)
            assert match, line
            section, number, gist, tests = match.groups()
            found.append((int(section), int(number), gist, tests.split(", ")))
    return found


def defined(files: list[Path]) -> set[str]:
    return {name for file in files for name in TEST.findall(file.read_text())}


def test_the_sentences_of_each_section_are_numbered_without_a_gap() -> None:
    found = sentences()
    assert [section for section, _ in groupby(found, lambda each: each[0])] == SECTIONS
    for section, lines in groupby(found, lambda each: each[0]):
        numbers = [number for _, number, _, _ in lines]
        assert numbers == list(range(1, len(numbers) + 1)), section


def test_every_sentence_names_tests_that_there_are() -> None:
    there = defined([*HERE.parent.rglob("test_*.py")])
    absent = {
        f"{section}.{number:02}": name
        for section, number, _, tests in sentences()
        for name in tests
        if name not in there
    }
    assert absent == {}


def test_every_contract_test_stands_behind_a_sentence() -> None:
    named = {name for *_, tests in sentences() for name in tests}
    files = list(HERE.glob("test_topics_contract_[0-9]*.py"))
    assert len(files) > 20
    assert sorted(defined(files) - named) == []
