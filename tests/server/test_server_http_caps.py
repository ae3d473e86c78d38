"""The caps of the HTTP door, by either name of their environment variables."""

import pytest

from millstream.server.options.config_error import ConfigError
from millstream.server.options.serve_config import CAPS, ServeConfig, given


@pytest.mark.parametrize("prefix", ["MILLSTREAM_", "TOPICS_"])
def test_every_cap_is_read_from_the_environment(prefix: str) -> None:
    environ = {prefix + name.upper(): str(number) for number, name in enumerate(CAPS, 7)}
    config = ServeConfig(**given({}, environ))
    caps = config.options().monitor.caps
    assert [getattr(caps, name) for name in CAPS] == list(range(7, 7 + len(CAPS)))


def test_our_own_names_win_over_the_other_ones() -> None:
    environ = {"MILLSTREAM_MAX_TOPICS": "1", "TOPICS_MAX_TOPICS": "2", "TOPICS_PORT": "0"}
    environ |= {"TOPICS_HOST": "127.0.0.2", "TOPICS_DATA_DIR": "/elsewhere"}
    config = ServeConfig(**given({}, environ))
    assert (config.max_topics, config.http_port, config.http_host) == (1, 0, "127.0.0.2")
    assert str(config.data_dir) == "/elsewhere"


def test_the_defaults_are_those_of_the_contract() -> None:
    caps = ServeConfig().options().monitor.caps
    assert [getattr(caps, name) for name in CAPS] == [
        100_000, 10_000, 10_000, 10_000, 1000, 1000, 0, 67_108_864,
        134_217_728, 67_108_864, 2_097_152, 1000,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [("MAX_TOPICS", "-1"), ("MAX_TOPICS", "many"), ("MAX_BODY_BYTES", "0")],
)
def test_a_cap_that_makes_no_sense_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"MILLSTREAM_{name}"):
        given({}, {f"MILLSTREAM_{name}": value})


def test_the_heartbeat_floor_can_only_be_lowered() -> None:
    for text, floor in (("5000", 1000), ("0", 1), ("100", 100)):
        assert given({}, {"TOPICS_TEST_MIN_HEARTBEAT_MS": text}) == {"test_min_heartbeat_ms": floor}
