"""The blocks of PySpark in the documents run as they are written, against a real session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark tests need pyspark")

from pyspark.sql import SparkSession

from support.broker import millstream
from support.pages import ROOT, steps, typed
from support.peers import Peer
from support.spark_session import spark_session

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
ORDERS = ['{"id":1,"region":"eu","amount":10.5}', '{"id":2,"region":"us","amount":2}']


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Peer]:
    with millstream(data_dir=tmp_path / "millstream-data") as peer:
        for command in (
            "stream add ORDERS 'orders.>'",
            "stream add EVENTS-1 'events.>'",
            "stream add NAMED 'named.>'",
            "stream add OUT 'out.>'",
            *(f"pub orders.new '{order}'" for order in ORDERS),
        ):
            assert typed(f"./millstream {command}", peer, tmp_path).returncode == 0
        yield peer


def at(source: str, url: str) -> str:
    """Point a block at this server instead of the default address."""
    source = source.replace(
        '.format("millstream")', f'.format("millstream").option("url", "{url}")'
    )
    source = source.replace("attach(spark)", f'attach(spark, url="{url}")')
    return source.replace('"ORDERS", payload_json', f'"ORDERS", url="{url}", payload_json')


def run_page(page: str, broker: Peer, directory: Path, spark: SparkSession) -> None:
    """Run all blocks of PySpark of a page in one scope, as in a notebook."""
    scope: dict[str, object] = {"spark": spark, "path": str(directory / "checkpoint")}
    for step in steps(ROOT / page):
        if step.kind == "python" and ("spark" in step.text or "live" in step.text):
            source = at(step.text, broker.url)
            for place in ("lake/", "checkpoints/"):  # Java's own directory is another one
                source = source.replace(f'"{place}', f'"{directory}/{place}')
            exec(compile(source, page, "exec"), scope)


def stored(stream: str, broker: Peer, directory: Path) -> str:
    return typed(f"./millstream stream view {stream}", broker, directory).stdout


@pytest.mark.parametrize("page", ["README.md", "docs/guide/first-five-minutes.md"])
def test_the_first_reads_show_the_records(
    page: str, broker: Peer, tmp_path: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    run_page(page, broker, tmp_path, spark)
    assert "orders.new" in capfd.readouterr().out


def test_the_guide_reads_joins_and_writes(
    broker: Peer, tmp_path: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    run_page("docs/guide/spark-users.md", broker, tmp_path, spark)
    shown = capfd.readouterr().out
    assert "orders.new" in shown
    assert "revenue" in shown
    named = stored("NAMED", broker, tmp_path)
    assert '"name":"Europe"' in named
    assert '"name":"America"' in named
    assert sorted(
        row.id for row in spark.read.parquet(str(tmp_path / "lake/orders")).collect()
    ) == [1, 2]


def test_the_reference_reads_as_it_says(broker: Peer, tmp_path: Path, spark: SparkSession) -> None:
    text = (ROOT / "docs/reference/spark-door.md").read_text()
    assert 'frame.write.format("millstream").option("stream", "OUT")' in text
    frame = spark.sql("select 'out.one' as subject, 'hello' as payload")
    scope: dict[str, object] = {"spark": spark, "frame": frame}
    for step in steps(ROOT / "docs/reference/spark-door.md"):
        source = step.text.split("frame.writeStream")[
            0
        ]  # its streaming half needs a streaming frame
        exec(compile(at(source, broker.url), "spark-door.md", "exec"), scope)
    assert "hello" in stored("OUT", broker, tmp_path)
