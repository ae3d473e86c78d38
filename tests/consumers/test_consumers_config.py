import pytest

from millstream.consumers.config import ConsumerConfig, ConsumerRefused, go_text
from millstream.streams.config.config import InvalidJson, StreamConfig

STREAM = StreamConfig(name="S", subjects=("s.>",))
CAPPED = StreamConfig(
    name="S",
    subjects=("s.>",),
    consumer_limits={"max_ack_pending": 10, "inactive_threshold": 60_000_000_000},
)


def refusal(stream: StreamConfig, **config: object) -> int:
    with pytest.raises(ConsumerRefused) as refused:
        ConsumerConfig.from_request(config, stream)
    return int(refused.value.err_code)


def test_a_stream_caps_its_consumers_and_sets_their_defaults():
    config = ConsumerConfig.from_request({"ack_policy": "explicit"}, CAPPED)
    assert (config.max_ack_pending, config.inactive_threshold) == (10, 60_000_000_000)
    assert refusal(CAPPED, ack_policy="explicit", max_ack_pending=11) == 10121
    assert refusal(CAPPED, inactive_threshold=60_000_000_001) == 10153


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"max_expires": 999_999}, 10115),
        ({"direct": True}, 10090),
        ({"direct": True, "deliver_subject": "d", "durable_name": "d"}, 10091),
        ({"deliver_subject": "d", "max_ack_pending": 5}, 10082),
        ({"sample_freq": "often"}, 10095),
        ({"priority_policy": "overflow"}, 10159),
        ({"priority_policy": "overflow", "priority_groups": ["seventeen-letters"]}, 10162),
    ],
)
def test_what_cannot_work_is_refused(config, code):
    assert refusal(STREAM, **config) == code


@pytest.mark.parametrize(
    "config",
    [
        {"opt_start_seq": -1},
        {"rate_limit_bps": -1},
        {"rate_limit_bps": 2**64},
        {"ack_wait": 2**63},
        {"opt_start_time": "yesterday"},
        {"pause_until": "tomorrow"},
    ],
)
def test_numbers_out_of_range_and_words_for_times_are_invalid_json(config):
    with pytest.raises(InvalidJson):
        ConsumerConfig.from_request(config, STREAM)


def test_durations_are_written_as_go_writes_them():
    shown = [go_text(ns) for ns in (1, 1_500, 50_000_000, 10**9, 90 * 10**9, 3_600 * 10**9)]
    assert shown == ["1ns", "1.5µs", "50ms", "1s", "1m30s", "1h0m0s"]
