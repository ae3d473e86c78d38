"""Each command and each block of Python in the documents runs as it is written, page by page."""

import shutil
from pathlib import Path

import pytest

from support.broker import millstream
from support.pages import ROOT, Step, executed, steps, typed

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
# Steps that no test types as they stand, by the beginning of their first line, with the reason.
# A reason "spark: …" names a Spark test that runs the block.
NOT_TYPED = {
    "make ": "sets the environment up in which this test runs",
    "./millstream pipeline ": "tests/pipelines runs these commands with Spark",
    "./millstream backup ": "names a place that only the reader has; tests/backup runs it",
    "./millstream restore ": "names a moment that only the reader has; tests/backup runs it",
    "from pyspark": "spark: test_docs_spark_blocks.py",
    "from millstream.spark ": "spark: test_docs_spark_blocks.py",
    "attach(spark)": "spark: test_docs_spark_blocks.py",
    "regions = ": "spark: test_docs_spark_blocks.py",
    "def store(": "spark: test_docs_spark_blocks.py",
    "reader = spark": "spark: tests/links/test_links_mirrors.py reads a mirror of another server",
    "frame.write": "spark: tests/spark/test_spark_sink.py writes such frames",
    "def test_orders_survive": "a sketch; tests/server/test_pytest_plugin.py has the real one",
}
# Pages whose blocks are parts of one program, which another test runs.
ELSEWHERE = {
    "docs/guide/python-client.md": "tests/client/test_client_guide.py",
    "docs/reference/pipelines.md": "tests/pipelines",
    "docs/guide/cold-history.md": "tests/spark/test_spark_cold.py",
}
curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def is_typed(step: Step) -> bool:
    return not any(step.first_line.startswith(start) for start in NOT_TYPED)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def pages() -> list[Path]:
    return [
        page
        for page in PAGES
        if name(page) not in ELSEWHERE and any(is_typed(step) for step in steps(page))
    ]


@curl
@pytest.mark.parametrize("page", pages(), ids=name)
def test_every_step_of_the_page_works_in_order(page: Path, tmp_path: Path) -> None:
    with millstream(data_dir=tmp_path / "millstream-data") as broker:
        for step in filter(is_typed, steps(page)):
            run = typed if step.kind == "shell" else executed
            done = run(step.text, broker, tmp_path)
            assert done.returncode == 0, (step.text, done.stdout, done.stderr)
            wrong = '"error"' in done.stdout and "topics/ORDER" not in step.text
            assert not wrong or "ORDERS" not in step.text, (step.text, done.stdout)


def test_enough_pages_are_typed() -> None:
    assert len(pages()) >= 8
    assert sum(len(steps(page)) for page in PAGES) >= 60


def test_a_wrong_command_is_noticed(tmp_path: Path) -> None:
    with millstream(data_dir=tmp_path / "millstream-data") as broker:
        assert typed("./millstream stream view NOBODY", broker, tmp_path).returncode != 0
        assert executed("import nobody_has_this", broker, tmp_path).returncode != 0


def test_each_reason_not_to_type_a_step_is_still_needed() -> None:
    every = [step for page in PAGES for step in steps(page)]
    unused = [
        start for start in NOT_TYPED if not any(step.first_line.startswith(start) for step in every)
    ]
    assert unused == []
    assert [page for page in ELSEWHERE if not (ROOT / page).exists()] == []
