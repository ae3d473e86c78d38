"""Requests with mistakes, or close to one: both servers answer with the same codes and words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compat.jetstream_excuses import Occasions, differences
from compat.jetstream_replay import PATIENCE, Player
from compat.jetstream_sessions import Session, Step
from compat.test_differential_jetstream import Pair, pair

__all__ = ["pair"]  # a fixture

SECOND = 10**9
LONG_AGO, SOME_DAY = "2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z"


def ask(api: str, body: Any = None, *headers: tuple[str, str]) -> Step:
    if body is None:
        body = b""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Step("ask", f"$JS.API.{api}", data, headers)


def direct(tail: str = "", body: Any = None) -> Step:
    asked = ask(f"DIRECT.GET.@S{tail}", body)
    return Step("many", asked.subject, asked.body)


def stream(**config: Any) -> Step:
    return ask("STREAM.CREATE.@T", {"name": "@T", **config})


def update(**config: Any) -> Step:
    return ask("STREAM.UPDATE.@S", {"name": "@S", "subjects": ["@.x.*"], **config})


def consumer(name: str = "c", **config: Any) -> Step:
    return ask(f"CONSUMER.CREATE.@S.{name}", {"stream_name": "@S", "config": config})


def publish(subject: str, *headers: tuple[str, str]) -> Step:
    return Step("ask", subject, b"x", headers)


S = ask("STREAM.CREATE.@S", {"name": "@S", "subjects": ["@.x.*"], "allow_direct": True})
RECORDS = (*(publish(f"@.x.{token}") for token in "aba"), publish("@.x.c", ("H", "v")))
GONE = ask("STREAM.DELETE.@T")
MADE = ask("CONSUMER.DELETE.@S.c")

CONSUMERS = [
    *(S, *RECORDS),
    *(consumer("a/b"), consumer("a\\b"), consumer("c" * 300, durable_name="c" * 300)),
    *(
        ask("CONSUMER.CREATE.@S", {"stream_name": "@S", "config": config})
        for config in ({"name": "a/b"}, {"name": "a.b"}, {"durable_name": "d"})
    ),
    *(consumer(name="other"), MADE, consumer(durable_name="other")),
    ask("CONSUMER.DURABLE.CREATE.@S.c", {"stream_name": "@S", "config": {"name": "c"}}),
    ask("CONSUMER.CREATE.@S.c", {"config": {}}),
    *(ask("CONSUMER.CREATE.@S.c", body) for body in (b"[]", b"null", b"", b'"x"', b"{")),
    ask("CONSUMER.CREATE.@S.c", {"stream_name": "@S", "config": {}, "action": "remove"}),
    *(
        consumer(**config)
        for config in (
            *({"ack_policy": 5}, {"max_deliver": "3"}, {"ack_wait": 1.5}, {"rate_limit_bps": -5}),
            *({"opt_start_time": "bad"}, {"pause_until": "bad"}, {"replay_policy": "x"}),
            *({"deliver_policy": "x"}, {"priority_policy": "bogus"}, {"opt_start_seq": -1}),
            *({"description": "d" * 4097}, {"metadata": {"k": "v" * 131072}}),
            *({"filter_subject": "a..b"}, {"filter_subject": " "}, {"filter_subjects": ["a b"]}),
            {"filter_subject": "@.x.a", "filter_subjects": ["@.x.b"]},
            *({"filter_subjects": ["@.x.a", "@.x.a"]}, {"filter_subjects": ["@.x.*", "@.>"]}),
            *({"deliver_policy": "by_start_time"}, {"deliver_policy": "by_start_sequence"}),
            {"deliver_policy": "by_start_time", "opt_start_seq": 3},
            {"deliver_policy": "by_start_time", "opt_start_time": LONG_AGO, "opt_start_seq": 3},
            {"deliver_policy": "by_start_sequence", "opt_start_time": LONG_AGO},
            *({"deliver_subject": "a..b"}, {"deliver_subject": "a.*"}, {"num_replicas": 2}),
            {"deliver_subject": "@.d", "max_ack_pending": 5},
            *({"num_replicas": -1}, {"backoff": [SECOND] * 4, "max_deliver": 3}),
            *({"ack_policy": "flow_control"}, {"direct": True}, {"ack_wait": -1}),
            {"ack_policy": "flow_control", "deliver_subject": "@.e", "max_deliver": 3},
            {"ack_policy": "flow_control", "deliver_subject": "@.e", "ack_wait": SECOND},
            {"ack_policy": "flow_control", "deliver_subject": "@.e", "max_ack_pending": -1},
            {"direct": True, "deliver_subject": "@.m", "durable_name": "c"},
            *({"sample_freq": text} for text in ("-5", "5%%", "%", "x")),
            *({"priority_policy": "pinned_client", "priority_groups": ["x" * 17]}, {"bogus": 1}),
            {"priority_policy": "overflow", "priority_groups": []},
        )
    ),
    *(
        step
        for config in (
            *({"filter_subject": ">"}, {"deliver_subject": ""}, {"deliver_group": "g"}),
            {"deliver_policy": "by_start_time", "opt_start_time": "2020-01-01T00:00:00+02:00"},
            {"deliver_policy": "by_start_time", "opt_start_time": "0001-01-01T00:00:00Z"},
            {"deliver_policy": "last_per_subject", "filter_subjects": ["@.x.a", "@.x.b"]},
            *({"deliver_subject": "$SYS.x"}, {"deliver_subject": "@.d", "deliver_group": "a b"}),
            {"max_batch": -1, "max_expires": -5, "max_bytes": -1, "max_waiting": -3},
            *({"backoff": [0]}, {"max_deliver": -7}, {"idle_heartbeat": -5}, {"sourcing": True}),
            {"backoff": [SECOND, 2 * SECOND], "ack_wait": 5 * SECOND, "ack_policy": "explicit"},
            *({"sample_freq": "101%"}, {"sample_freq": "+5"}, {"max_ack_pending": -5}),
            {"priority_policy": "prioritized", "priority_groups": ["a"], "priority_timeout": 5},
            {"priority_policy": "pinned_client", "priority_groups": ["a", "a"]},
        )
        for step in (consumer(**config), MADE)
    ),
    consumer(priority_policy="pinned_client", priority_groups=["a"]),
    *(
        ask(f"CONSUMER.{api}", body)
        for api in ("UNPIN.@S.c", "RESET.@S.c", "PAUSE.@S.c", "UNPIN.@S.no", "PAUSE.@N.c")
        for body in (b"{", {"bogus": 1}, {"group": "a", "bogus": 1}, {"group": "b"}, {"seq": -1})
    ),
    ask("CONSUMER.PAUSE.@S.c", {"pause_until": "bad"}),
    *(
        ask(f"CONSUMER.{api}", body)
        for api in ("NAMES.@S", "LIST.@S", "NAMES.@N", "INFO.@S.c", "INFO.@N.c", "DELETE.@S.no")
        for body in (b"", b"{", b" ", b"{ }", b"null", {"offset": 9}, {"offset": "x"}, {"a": 1})
    ),
]

STREAMS = [
    *(S, *RECORDS),
    *(ask("STREAM.CREATE.@T", body) for body in (b"[]", b"null", b"", b"{", {"name": ""})),
    *(ask(f"STREAM.CREATE.{name}", {"name": name}) for name in ("a*", "a\\b", "a/b", "n" * 256)),
    *(
        stream(**config)
        for config in (
            *({"subjects": [one]} for one in ("", "a b", "a..b", ".a", ">", "$JS.x", "$SYS.x")),
            *({"subjects": [one]} for one in ("$JSC.x", "$NRG.x", "@.x.a", "*.x.a")),
            *({"subjects": ["@.t", "@.t"]}, {"subjects": ["@.*", "@.t"]}, {"subjects": "@.t"}),
            *({"description": "d" * 4097}, {"metadata": {"k": "v" * 131072}}, {"metadata": ["a"]}),
            *({"metadata": {"a": 1}}, {"max_age": 1}, {"max_age": 99_999_999}, {"max_age": "5s"}),
            *({"max_age": SECOND, "duplicate_window": 2 * SECOND}, {"duplicate_window": -1}),
            *({"duplicate_window": 99}, {"max_msg_size": 2**31}, {"num_replicas": -1}),
            *({"num_replicas": 6}, {"num_replicas": 2}, {"num_replicas": True}, {"sealed": "yes"}),
            *({key: "x"} for key in ("retention", "storage", "discard", "compression")),
            *({"persist_mode": "x"}, {"persist_mode": "async", "storage": "memory"}, {"bogus": 1}),
            *({"persist_mode": "async", "allow_atomic": True}, {"retention": 5}, {"sealed": True}),
            *({"discard_new_per_subject": True}, {"first_seq": -1}, {"mirror_direct": True}),
            {"discard_new_per_subject": True, "discard": "new"},
            *({"allow_rollup_hdrs": True, "deny_purge": True}, {"subject_delete_marker_ttl": 5}),
            *(
                {"allow_msg_counter": True, **other}
                for other in (
                    *({"discard": "new"}, {"allow_msg_ttl": True}, {"retention": "interest"}),
                    {"allow_msg_schedules": True},
                )
            ),
            *({"allow_msg_schedules": True, "discard": "new"}, {"consumer_limits": {"bogus": 1}}),
            *({"placement": {"bogus": 1}}, {"placement": {"preferred": "x"}}),
            {"republish": {"dest": "a..b"}},
            *({"republish": {"src": ">", "dest": "@T"}}, {"max_msgs": "5"}, {"max_msgs": 1.5}),
            {"subjects": ["@.t.>"], "republish": {"src": ">", "dest": "@.t.>"}},
            {"subject_transform": {"src": "a b", "dest": "b"}},
            *({"mirror": {"name": name}} for name in ("", "a b", "@T")),
            *({"mirror": {"name": "@S"}, "subjects": ["@.t"]}, {"mirror": {"name": "@S", "a": 1}}),
            {"mirror": {"name": "@S"}, "sources": [{"name": "@S"}]},
            {"mirror": {"name": "@S", "filter_subject": "a..b"}},
            {
                "mirror": {
                    "name": "@S",
                    "filter_subject": "a",
                    "subject_transforms": [{"src": "b", "dest": "c"}],
                }
            },
            *(
                {"mirror": {"name": "@S"}, **other}
                for other in (
                    *({"first_seq": 5}, {"allow_msg_counter": True}, {"allow_atomic": True}),
                    *({"allow_batched": True}, {"allow_msg_schedules": True}),
                    {"subject_delete_marker_ttl": SECOND},
                )
            ),
            *({"sources": [{"name": name}]} for name in ("", "@T")),
            *({"sources": [{"name": "@S"}] * 2}, {"max_msgs": 2**63}),
            {"sources": [{"name": "@S", "filter_subject": "a..b"}]},
            {"sources": [{"name": "@S"}], "allow_msg_schedules": True},
            *(
                {"sources": [{"name": "x", "external": {"api": api, "deliver": deliver}}]}
                for api, deliver in (("a.*", "foo"), ("a", "foo.>"), ("$JS.API", "foo"))
            ),
            {"subjects": ["@.t"], "pedantic": True, "max_msgs": 0},
        )
    ),
    *(
        step
        for config in (
            *({"subjects": []}, {"subjects": None}, {"subjects": ["$KV.x.>"]}),
            {"subjects": [">"], "no_ack": True},
            {"max_msgs": -5, "max_bytes": -7, "max_msg_size": -3, "max_consumers": -2},
            *({"max_msg_size": 2**31 - 1}, {"compression": "s2"}, {"first_seq": 0}),
            *({"persist_mode": "async", "allow_batched": True}, {"placement": {}}),
            *(
                {"consumer_limits": {"max_ack_pending": -2}},
                {"republish": {"src": "a", "dest": "b"}},
                {"republish": {"src": "", "dest": ""}},
            ),
            *({"subject_transform": {"src": "", "dest": ""}}, {"placement": {"cluster": "x"}}),
        )
        for step in (stream(**config), GONE)
    ),
    *(
        update(**config)
        for config in (
            *({"retention": "workqueue"}, {"storage": "memory"}, {"mirror": {"name": "x"}}),
            *({"persist_mode": "async"}, {"allow_msg_counter": True}, {"num_replicas": 3}),
            *({"deny_delete": True}, {}, {"deny_delete": True, "allow_msg_ttl": True}),
            *({"deny_delete": True}, {"bogus": 1}, {"duplicate_window": 5}),
        )
    ),
    *(ask("STREAM.UPDATE.@S", body) for body in (b"", b"{", {"name": "other"})),
    ask("STREAM.UPDATE.@N", {"name": "@N"}),
]

GETS = (
    *(None, {}, {"seq": 0}, {"seq": -1}, {"seq": "1"}, {"seq": 1.0}, {"seq": 6}, {"seq": 3}),
    *({"last_by_subj": subject} for subject in ("", "@.x.*", "a..b", ">", "none")),
    *({"next_by_subj": subject, "seq": 2} for subject in ("", "@.x.a", ">", "none")),
    *({"last_by_subj": "@.x.a", "next_by_subj": "@.x.a"}, {"last_by_subj": "@.x.a", "seq": 2}),
    *({"start_time": time} for time in (LONG_AGO, SOME_DAY, "bad")),
    *({"start_time": LONG_AGO, "seq": 1}, {"start_time": LONG_AGO, "next_by_subj": "@.x.b"}),
    *({"seq": 3, "no_hdr": True}, {"batch": 2}, {"batch": 2, "seq": 1}, {"batch": -1, "seq": 1}),
    *({"max_bytes": 2, "seq": 1}, {"batch": 9, "seq": 1, "max_bytes": 1}, {"batch": 2, "seq": 9}),
    *({"batch": 2, "start_time": time} for time in (LONG_AGO, SOME_DAY)),
    *({"batch": 9, "next_by_subj": "@.x.a"}, {"batch": 2, "last_by_subj": "@.x.a"}),
    *({"multi_last": names} for names in ([], [""], ["none"], ["@.x.>"], ["@.x.>", "@.x.a"])),
    *(
        {"multi_last": ["@.x.>"], **more}
        for more in (
            *({"seq": 1}, {"last_by_subj": "a"}, {"up_to_seq": 3}, {"batch": 1}, {"max_bytes": 1}),
            *({"up_to_time": LONG_AGO}, {"up_to_time": SOME_DAY}, {"start_time": LONG_AGO}),
            {"up_to_seq": 3, "up_to_time": SOME_DAY},
        )
    ),
    *({"up_to_seq": 3}, {"up_to_seq": 3, "seq": 1}, {"up_to_seq": -3}, {"bogus": 1, "seq": 1}),
    *(b"{", b"null", b"[]", b"x"),
)
NUMBERS = (b"", b"{", b"[]", {"seq": -1}, {"seq": "x"}, {"bogus": 1})
RECORD_REQUESTS = [
    *(S, *RECORDS),
    *(ask("STREAM.MSG.GET.@S", body) for body in GETS if body != b"x"),
    *(ask("STREAM.MSG.GET.@N", body) for body in (b"", {"seq": 1})),
    *(direct(body=body) for body in GETS),
    *(direct(".@.x.a", body) for body in (b"", b"x", {"seq": 1}, {"no_hdr": True}, {"bogus": 1})),
    *(direct(f".@.x.{token}") for token in ("none", "*")),
    *(ask("STREAM.MSG.DELETE.@S", body) for body in (*NUMBERS, {"seq": 0}, {"seq": 99})),
    *(ask("STREAM.MSG.DELETE.@S", {"seq": seq, "no_erase": seq == 3}) for seq in (2, 2, 3)),
    *(ask("STREAM.MSG.DELETE.@N", body) for body in (b"", {"seq": 1})),
    *(ask("STREAM.PURGE.@S", body) for body in (*NUMBERS[1:], {"keep": -1}, {"filter": "a..b"})),
    *(ask("STREAM.PURGE.@S", body) for body in ({"seq": 1, "keep": 1}, {"keep": 9})),
    ask("STREAM.INFO.@S", {"deleted_details": True}),
    *(ask("STREAM.PURGE.@S", {"seq": 100, **more}) for more in ({"filter": "@.x.b"}, {})),
    *(ask("STREAM.PURGE.@N", body) for body in (b"", b"{", {"seq": 1, "keep": 1})),
    *(publish("@.x.a"), ask("STREAM.INFO.@S")),
    *(
        ask(f"STREAM.{api}", body)
        for api in ("NAMES", "LIST", "INFO.@S", "INFO.@N", "DELETE.@N")
        for body in (b"{", b"[]", {"bogus": 1}, {"offset": "x"}, {"offset": 99, "subject": "@.x.a"})
    ),
    *(ask("STREAM.NAMES", {"subject": subject}) for subject in ("a..b", "@.x.*")),
    *(ask("STREAM.INFO.@S", {"subjects_filter": one}) for one in ("a..b", "@.x.*", ">")),
    *(ask("STREAM.INFO.@S", {"subjects_filter": ">", "offset": at}) for at in (-1, 1, 9)),
    *(ask("STREAM.INFO.@S", b"", ("Nats-Required-Api-Level", level)) for level in ("-1", "", "5")),
    *(ask("STREAM.INFO.@S", b"", ("Nats-Required-Api-Level", level)) for level in ("6", "x")),
    *(
        ask("STREAM.SNAPSHOT.@S", body)
        for body in (b"", {}, {"deliver_subject": "a..b"}, {"deliver_subject": "a", "bogus": 1})
    ),
    *(
        ask("STREAM.RESTORE.@N", body)
        for body in (b"", b"{", {}, {"config": {"name": "@X"}, "state": {}})
    ),
    ask("STREAM.RESTORE.@S", {"config": {"name": "@S"}, "state": {}}),
    *(ask("STREAM.DELETE.@S", body) for body in (b"x", b"null", b" ", b"[]", b"{ }")),
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(CONSUMERS, id="consumers"),
        pytest.param(STREAMS, id="streams"),
        pytest.param(RECORD_REQUESTS, id="records"),
    ],
)
async def test_mistakes_are_told_as_the_reference_tells_them(pair: Pair, steps: list[Step]) -> None:
    players = [Player(Session(0, tuple(steps)), "s", 0.0, PATIENCE) for _ in pair.peers]
    for player, peer in zip(players, pair.peers, strict=True):
        assert not await player.play(peer)
    ours, theirs = (player.seen[: len(steps)] for player in players)
    found = differences(ours, theirs, Occasions())
    assert [f"{steps[int(line.split()[1][:-1])]} {line}" for line in found] == []
    assert "Traceback" not in pair.peers[0].output()
