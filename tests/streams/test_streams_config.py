import pytest

from millstream.errors import BadRequest, InvalidStreamConfig
from millstream.store.log.log import Durability
from millstream.streams.config.config import (
    InvalidJson,
    ReplicasUnsupported,
    StreamConfig,
    TypeChange,
)
from millstream.streams.config.feature_rules import FeatureRefused
from support.topic_defaults import DEFAULTS

NS = 10**9


def request(**fields: object) -> StreamConfig:
    return StreamConfig.from_request({"name": "S", **fields})


def test_defaults_are_filled_in_and_survive_a_round_trip():
    config = request(max_msgs=0, max_bytes=-7)
    assert (config.subjects, config.max_msgs, config.max_bytes) == (("S",), -1, -1)
    assert config.duplicate_window == 120_000_000_000
    assert StreamConfig.from_request(config.to_request()) == config


def test_the_duplicate_window_is_at_most_max_age():
    assert request(max_age=10**9).duplicate_window == 10**9


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"max_age": 3}, "max age needs to be >= 100ms"),
        ({"subjects": ["a..b"]}, "invalid subject"),
        ({"subjects": ["a.*", "a.b"]}, 'subject "a.*" overlaps with "a.b"'),
        ({"subjects": [">"]}, "capturing all subjects requires no-ack to be true"),
        (
            {"subjects": ["$JS.API.x"]},
            "subjects that overlap with jetstream api require no-ack to be true",
        ),
        ({"duplicate_window": -1}, "duplicates window can not be negative"),
        (
            {"max_age": 10**9, "duplicate_window": 2 * 10**9},
            "duplicates window can not be larger then max age",
        ),
        (
            {"discard_new_per_subject": True},
            "discard new per subject requires discard new policy to be set",
        ),
        ({"allow_rollup_hdrs": True, "deny_purge": True}, "roll-ups require the purge permission"),
        ({"name": "a.b"}, "stream name is required and can not contain"),
        ({"name": ""}, "stream name is required and can not contain"),
        (
            {"mirror": {"name": "M", "filter_subject": "a..b"}},
            "subject filter 'a..b' for the mirror invalid subject",
        ),
        ({"name": "a" * 256}, "stream name is too long, maximum allowed is 255"),
        ({"metadata": {"millstream.durability": "eternal"}}, "ephemeral, memory, disk, fsync"),
    ],
)
def test_an_impossible_configuration_is_refused_by_name(fields, why):
    with pytest.raises(InvalidStreamConfig) as refused:
        request(**fields)
    assert why in refused.value.message


@pytest.mark.parametrize(
    "fields",
    [
        {"max_msgs": 2**63},
        {"max_age": -(2**63) - 1},
        {"max_msg_size": 2**31},
        {"first_seq": -1},
        {"first_seq": 2**64},
    ],
)
def test_numbers_that_the_reference_has_no_room_for_are_invalid_json(fields):
    with pytest.raises(InvalidJson, match="out of range"):
        request(**fields)


def test_unknown_fields_and_words_are_invalid_json():
    with pytest.raises(InvalidJson, match='json: unknown field "bogus"'):
        request(bogus=1)
    with pytest.raises(InvalidJson, match="can not unmarshal"):
        request(retention="foo")
    with pytest.raises(InvalidJson):
        request(max_msgs="many")
    with pytest.raises(ReplicasUnsupported):
        request(num_replicas=3)
    with pytest.raises(InvalidStreamConfig, match="stream name is required"):
        request(name="a/b")


@pytest.mark.parametrize(
    ("fields", "durability"),
    [
        ({}, Durability.FSYNC),
        ({"storage": "memory"}, Durability.EPHEMERAL),
        ({"persist_mode": "async"}, Durability.DISK),
        ({"storage": "memory", "metadata": {"millstream.durability": "disk"}}, Durability.DISK),
    ],
)
def test_the_durability_class_follows_its_rule(fields, durability):
    assert request(**fields).durability() is durability


def test_a_topic_without_a_config_shows_the_default_object_and_captures_nothing():
    config = StreamConfig.from_topic("t", {})
    assert config.to_topic() == DEFAULTS
    assert config.subjects == ()


def test_a_topic_config_comes_back_as_it_was_given():
    given = {
        **DEFAULTS,
        "type": "queue",
        "ttl_ms": 50,
        "cap_records": 7,
        "cap_bytes": 900,
        "discard": "reject",
        "durable": True,
        "durability": "fsync",
        "priority": -5,
        "auto_create": False,
        "lease_ms": 100,
        "dead_letter": "dead",
        "subjects": ["t.>"],
    }
    config = StreamConfig.from_topic("t", given)
    assert config.to_topic() == given
    assert (config.max_age, config.max_msgs, config.discard) == (50_000_000, 7, "new")


def test_put_replaces_its_own_keys_and_keeps_what_http_cannot_express():
    stream = request(max_msgs=9, max_msg_size=100, subjects=["a"], metadata={"own": "x"})
    changed = StreamConfig.from_topic("S", {"ttl_ms": 5}, stream)
    assert (changed.max_msgs, changed.max_age, changed.max_msg_size) == (-1, 5_000_000, 100)
    assert (changed.subjects, changed.metadata) == (("a",), {"own": "x"})
    assert changed.durability() is Durability.FSYNC
    topic = StreamConfig.from_topic("t", {"durability": "fsync", "priority": 3})
    assert StreamConfig.from_topic("t", {}, topic).to_topic() == DEFAULTS


def test_a_topic_keeps_its_type():
    queue = StreamConfig.from_topic("q", {"type": "queue"})
    with pytest.raises(TypeChange) as refused:
        StreamConfig.from_topic("q", {}, queue)
    assert refused.value.detail == {
        "topic": "q",
        "existing_type": "queue",
        "requested_type": "log",
    }


@pytest.mark.parametrize(
    "config",
    [
        {"ttl_ms": -1},
        {"cap_records": "5"},
        {"discard": "new"},
        {"durability": "x"},
        {"priority": 2**31},
        {"dead_letter": "-bad"},
        {"type": "queue", "dead_letter": "t"},
        {"durable": "yes"},
    ],
)
def test_a_bad_topic_value_is_a_bad_request(config):
    with pytest.raises(BadRequest):
        StreamConfig.from_topic("t", config)
    with pytest.raises(BadRequest):
        StreamConfig.from_topic("bad name", {})


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"max_age": NS, "discard_new_per_subject": True}, "duplicate window"),
        ({"max_msgs": -5, "max_age": 5}, "max_msgs must be set to -1"),
        ({"duplicate_window": NS, "max_age": 2 * NS, "republish": {"dest": "r.>"}}, "republish"),
    ],
)
def test_a_pedantic_request_is_refused_for_what_comes_first(asked, why):
    with pytest.raises(FeatureRefused) as refused:
        StreamConfig.from_request({"name": "S", "pedantic": True, **asked})
    assert refused.value.err_code == 10157
    assert why in str(refused.value)


def test_a_counter_takes_delete_markers_but_no_lifetimes_that_were_asked_for():
    counter = {"name": "S", "allow_msg_counter": True, "subject_delete_marker_ttl": 60 * NS}
    assert StreamConfig.from_request(counter).allow_msg_ttl
    with pytest.raises(InvalidStreamConfig, match="counter stream cannot use message TTLs"):
        StreamConfig.from_request({**counter, "allow_msg_ttl": True})
