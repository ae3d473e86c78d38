"""Planted in a copy of the source, each mutant is noticed by the tests that guard its package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mutant_table import MUTANTS, Mutant

import millstream
from support.scale import count

ROOT = Path(__file__).parents[2]
SOURCE = Path(millstream.__file__).parent
NOTICED = 1  # how pytest ends when a test fails
CHOSEN = MUTANTS[:: count(8, 1)]


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package that may be changed; the compiled kernel is as it is."""
    place = tmp_path_factory.mktemp("mutants")
    leave = shutil.ignore_patterns("*.pyx", "*.pxd", "*.c", "__pycache__")
    shutil.copytree(SOURCE, place / "millstream", ignore=leave)
    beside = SOURCE.parent / "pyspark_millstream"
    shutil.copytree(beside, place / "pyspark_millstream", ignore=leave)
    return place


def is_noticed(mutant: Mutant, copy: Path) -> bool:
    """Plant a mutant, run its tests, and take it out again."""
    path = copy / "millstream" / mutant.file
    sound = path.read_text()
    path.write_text(sound.replace(mutant.before, mutant.after))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-n", "0"]
    try:
        done = subprocess.run(
            [*command, "-m", "not slow and not spark", *mutant.tests],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        path.write_text(sound)
    assert done.returncode in (0, NOTICED), done.stdout[-2000:] + done.stderr[-2000:]
    return done.returncode == NOTICED


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_place_of_the_source(mutant: Mutant) -> None:
    assert (SOURCE / mutant.file).read_text().count(mutant.before) == 1
    assert mutant.before != mutant.after
    for tests in mutant.tests:
        assert (ROOT / tests).exists(), tests


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mutant", CHOSEN, ids=lambda mutant: mutant.name)
def test_a_mutant_is_noticed(mutant: Mutant, copy: Path) -> None:
    assert is_noticed(mutant, copy)


def test_there_are_enough_mutants_and_two_for_each_package() -> None:
    packages = [mutant.file.split("/", 1)[0] for mutant in MUTANTS]
    assert len(MUTANTS) >= 20
    assert {package for package in packages if packages.count(package) < 2} == set()
