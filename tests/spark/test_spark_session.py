"""Registration: workers get this Python, unless the user chose another."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

import pyspark_millstream
from millstream.spark import register
from millstream.spark.session import PUT_BY_QUERIES, registered
from millstream.spark.source import MillstreamSource


class FakeSession:
    """As much of a session as registering touches."""

    def __init__(self, master: str = "spark://h:7077", **conf: str) -> None:
        self.registered: list[type] = []
        self.dataSource = SimpleNamespace(register=self.registered.append)
        given = SparkConf(loadDefaults=False, _jvm=None).setAll(list(conf.items()))
        self.sparkContext: Any = SimpleNamespace(
            pythonExec="python3", getConf=lambda: given, master=master, environment={"A": "b"}
        )


class ConnectSession(FakeSession):
    """Spark Connect has no context; asking for it raises."""

    @property
    def sparkContext(self) -> Any:
        raise RuntimeError("not supported in Spark Connect")

    @sparkContext.setter
    def sparkContext(self, _: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def no_choice_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


def test_workers_run_the_python_that_registered() -> None:
    session = FakeSession()
    register(session)  # type: ignore[arg-type]
    assert session.sparkContext.pythonExec == sys.executable
    assert session.registered == [MillstreamSource]


def test_local_workers_run_it_without_the_zip_of_pyspark_that_they_would_compile() -> None:
    session = FakeSession("local[2]")
    register(session)  # type: ignore[arg-type]
    command = session.sparkContext.pythonExec
    places = "/a/pyspark.zip:/kept:/b/py4j-0.10-src.zip"
    shown = subprocess.run(
        [command, "-c", "import os, sys; print(sys.executable, os.environ['PYTHONPATH'])"],
        env={"PYTHONPATH": places, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.split() == [sys.executable, "/kept"]


def test_a_python_that_the_user_chose_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    configured = FakeSession(**{"spark.pyspark.python": "/opt/python"})
    register(configured)  # type: ignore[arg-type]
    assert configured.sparkContext.pythonExec == "python3"
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    chosen = FakeSession()
    register(chosen)  # type: ignore[arg-type]
    assert chosen.sparkContext.pythonExec == "python3"


def test_a_connect_session_is_registered_without_a_context() -> None:
    session = ConnectSession()
    register(session)  # type: ignore[arg-type]
    assert session.registered == [MillstreamSource]


def test_a_table_does_not_register_again() -> None:
    session = FakeSession()
    registered(session)  # type: ignore[arg-type]
    registered(session)  # type: ignore[arg-type]
    assert session.registered == [MillstreamSource]


def test_nothing_stays_in_the_environment_of_other_functions() -> None:
    session = FakeSession()
    seen: list[dict[str, str]] = []
    register_it = session.dataSource.register
    session.dataSource.register = lambda source: (
        seen.append(dict(session.sparkContext.environment)),
        register_it(source),
    )
    register(session)  # type: ignore[arg-type]
    assert seen == [{"A": "b", **dict.fromkeys(PUT_BY_QUERIES, "")}]
    assert session.sparkContext.environment == {"A": "b"}


def test_spark_finds_the_source_by_itself_under_its_name() -> None:
    assert pyspark_millstream.DefaultSource is MillstreamSource
    assert MillstreamSource.name() == "millstream"


@pytest.mark.spark
def test_a_real_session_runs_workers_that_have_this_package(spark: SparkSession) -> None:
    def where(_: Any) -> list[str]:
        import millstream.spark.reading.rows

        return [sys.executable, millstream.spark.reading.rows.__name__]

    assert spark.sparkContext.parallelize([1], 1).flatMap(where).collect() == [
        sys.executable,
        "millstream.spark.reading.rows",
    ]
