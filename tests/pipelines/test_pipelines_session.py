"""What a pipeline's Spark session is configured with."""

import socket
from pathlib import Path

import pytest

from millstream.pipelines.problems import PipelineError
from millstream.pipelines.session import (
    JAVA_OPTIONS,
    SessionOptions,
    configuration,
    spark_session,
    why_java_ended,
)

JAVA = "spark.driver.extraJavaOptions"


def test_only_a_local_session_has_settings_of_this_machine() -> None:
    local = configuration(SessionOptions("p"))
    assert (local[JAVA], local["spark.driver.host"]) == (JAVA_OPTIONS, "127.0.0.1")
    for elsewhere in (
        SessionOptions("p", master="spark://x"),
        SessionOptions("p", remote="sc://x"),
    ):
        assert not {JAVA, "spark.driver.host"} & set(configuration(elsewhere))


def test_the_users_settings_come_last() -> None:
    given = {JAVA: "-Dmine=1", "spark.ui.enabled": "true"}
    found = configuration(SessionOptions("p", ui=False, settings=given))
    assert found | given == found


def test_a_spark_connect_server_that_is_not_there_is_told_at_once() -> None:
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))  # without listening: nobody else can come there meanwhile
    where = f"sc://127.0.0.1:{taken.getsockname()[1]}/;user_id=ann;token=secret"
    with (
        taken,
        pytest.raises(PipelineError, match=r"no Spark Connect server answers .*refused") as refusal,
        spark_session(SessionOptions("p", remote=where)),
    ):
        pass
    assert "secret" not in str(refusal.value)


def test_why_java_ended_is_told_in_its_own_words(tmp_path: Path) -> None:
    log = tmp_path / "java.log"
    assert why_java_ended(log) is why_java_ended(None) is None
    log.write_text(
        'WARN: x\nException in thread "main" org.apache.spark.SparkException: Master must be y\n'
        "\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)\n"
    )
    assert why_java_ended(log) == "Master must be y"
