"""What a pipeline's Spark session is configured with."""

from millstream.pipelines.session import JAVA_OPTIONS, SessionOptions, configuration

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
