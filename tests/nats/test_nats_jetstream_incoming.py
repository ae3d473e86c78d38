"""How records come into streams other than by plain publish: here and at the real nats-server."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from jetstream_broker import Broker, both
from nats.aio.client import Client

import nats
from support.jetstream_api import api, info_at


async def create(client: Client, name: str, **config: Any) -> Any:
    return await api(client, f"STREAM.CREATE.{name}", {"name": name, **config})


async def publish(client: Client, subject: str, data: bytes = b"x", **headers: str) -> Any:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    reply = await client.request(subject, data, timeout=5, headers=named or None)
    return json.loads(reply.data) if reply.data else None


def told(answer: dict[str, Any]) -> Any:
    return answer.get("error", "")


async def records(client: Client, stream: str, last: int) -> list[Any]:
    """Return (sequence, subject, headers, data) of what is there, incarnations left out."""
    found = []
    for seq in range(1, last + 1):
        answer = await api(client, f"STREAM.MSG.GET.{stream}", {"seq": seq})
        if "message" in answer:
            one = answer["message"]
            block = base64.b64decode(one.get("hdrs", ""))
            block = re.sub(rb"(Nats-Stream-Source: .*) \S+\r", rb"\1\r", block)
            data = base64.b64decode(one.get("data", ""))
            found.append((one["seq"], one["subject"], block, data))
    return found


def shown(info: dict[str, Any]) -> list[Any]:
    """Return what must be the same: neither times nor how long ago something was."""
    fed = info.get("mirror") or {}
    fed["active"] = min(fed.get("active", 0), 0)
    state = {key: info["state"].get(key) for key in ("messages", "first_seq", "last_seq")}
    return [state, info["state"].get("num_deleted"), fed, info["config"].get("mirror")]


MIRRORS: list[tuple[dict[str, Any], int]] = [
    ({}, 6),
    ({"filter_subject": "o.0"}, 6),
    ({"opt_start_seq": 4}, 6),
    ({"opt_start_time": "2020-01-01T00:00:00Z"}, 6),
    ({"subject_transforms": [{"src": "o.1", "dest": "t.one"}, {"src": "o.2", "dest": ""}]}, 5),
]


async def mirroring(client: Client) -> list[Any]:
    seen: list[Any] = []
    await create(client, "O", subjects=["o.*"], allow_direct=True)
    for at in range(1, 7):
        await publish(client, f"o.{at % 3}", b"m%d" % at, Nats_Expected_Stream="O", H="v")
    await api(client, "STREAM.MSG.DELETE.O", {"seq": 3})
    await api(client, "STREAM.PURGE.O", {"seq": 2})
    for at, (asked, last) in enumerate(MIRRORS):
        made = await create(client, f"M{at}", mirror={"name": "O", **asked})
        seen.append((made["config"]["mirror"], made["config"]["mirror_direct"]))
        seen += shown(await info_at(client, f"M{at}", last))
        seen.append(await records(client, f"M{at}", last))
    await create(client, "MM", mirror={"name": "M0"})
    seen += shown(await info_at(client, "MM", 6))
    # What the origin loses stays; what it lost before it came is a hole.
    await api(client, "STREAM.PURGE.O", {})
    await publish(client, "o.1")
    await publish(client, "o.2")
    for name in ("M0", "M4", "MM"):
        seen += shown(await info_at(client, name, 8))
    return seen


async def test_a_mirror_holds_what_it_holds_at_the_reference(tmp_path: Path):
    ours, theirs = await both(tmp_path, mirroring)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert mine == wanted


async def promoting(client: Client) -> list[Any]:
    await create(client, "O", subjects=["o.*"])
    await publish(client, "o.1")
    await create(client, "M", mirror={"name": "O"})
    await info_at(client, "M", 1)
    seen = [
        told(await api(client, "STREAM.UPDATE.M", {"name": "M", "mirror": {"name": "X"}})),
        told(await api(client, "STREAM.UPDATE.O", {"name": "O", "mirror": {"name": "X"}})),
        told(await api(client, "STREAM.UPDATE.M", {"name": "M", "subjects": ["m"],
                                                   "mirror": {"name": "O"}})),
    ]  # fmt: skip
    promoted = await api(client, "STREAM.UPDATE.M", {"name": "M", "subjects": ["m.*"]})
    seen += [promoted["config"].get("mirror"), promoted["config"]["duplicate_window"]]
    seen += [await publish(client, "m.1", b"mine"), await publish(client, "o.1", b"not mine")]
    seen.append((await info_at(client, "M", 2))["state"]["last_seq"])
    return seen


async def test_a_mirror_is_promoted_as_at_the_reference(tmp_path: Path):
    ours, theirs = await both(tmp_path, promoting)
    assert ours == theirs


REFUSED: list[dict[str, Any]] = [
    {"mirror": {}},
    {"mirror": {"name": "a.b"}},
    {"mirror": {"name": "O", "bogus": 1}},
    {"mirror": {"name": "O", "external": {"api": "x", "bogus": 1}}},
    {"mirror": {"name": "O"}, "subjects": ["x"]},
    {"mirror": {"name": "O"}, "sources": [{"name": "O"}]},
    {"mirror": {"name": "O"}, "first_seq": 5},
    {"mirror": {"name": "O"}, "allow_msg_counter": True},
    {"mirror": {"name": "O"}, "allow_atomic": True},
    {"mirror": {"name": "O"}, "allow_batched": True},
    {"mirror": {"name": "O"}, "allow_msg_schedules": True},
    {"mirror": {"name": "O"}, "subject_delete_marker_ttl": 10**9},
    {"mirror": {"name": "O"}, "max_msg_size": 10},
    {"mirror": {"name": "T"}},
    {"mirror": {"name": "O", "filter_subject": "a", "subject_transforms": [{"src": "b"}]}},
    {"mirror": {"name": "O", "subject_transforms": [{"src": "a.b.*"}, {"src": "a.*.c"}]}},
    {"mirror": {"name": "O", "subject_transforms": [{"src": "a..b"}]}},
    {"mirror": {"name": "O", "subject_transforms": [{"src": "a.*", "dest": "{{wildcard(2)}}"}]}},
    {"mirror": {"name": "O", "external": {"api": "$JS.API", "deliver": "d"}}},
    {"mirror": {"name": "O", "external": {"api": "x.*", "deliver": "d"}}},
    {"mirror": {"name": "O", "external": {"api": "x", "deliver": "d.>"}}},
    {"mirror": {"name": "O", "consumer": {"name": "a.b", "deliver_subject": "d"}}},
    {"sources": [{"name": "O"}], "max_msg_size": 10},
    {"sources": [{"name": "T"}]},
    {"sources": [{"name": "O"}, {"name": "O"}]},
    {"sources": [{"name": "O", "external": {"api": "$JS.API", "deliver": "d"}}]},
    {"sources": [{"name": "O", "consumer": {"name": "c", "deliver_subject": "d.*"}}]},
    {"sources": [{"name": "O"}], "allow_msg_schedules": True},
    {"allow_msg_schedules": True, "discard": "new"},
    {"allow_msg_schedules": True, "allow_msg_counter": True},
]


async def refusing(client: Client) -> list[Any]:
    await create(client, "O", subjects=["o.*"], max_msg_size=100)
    answers = []
    for config in REFUSED:
        answers.append(told(await create(client, "T", **config)))
        await api(client, "STREAM.DELETE.T")
    return answers


async def test_what_no_mirror_or_source_can_be_is_refused_in_the_reference_s_words(tmp_path: Path):
    ours, theirs = await both(tmp_path, refusing)
    for config, mine, wanted in zip(REFUSED, ours, theirs, strict=True):
        assert (config, mine) == (config, wanted)


async def counting(client: Client) -> list[Any]:
    counters = {"allow_msg_counter": True, "allow_atomic": True}
    seen: list[Any] = []
    for name in ("A", "B"):
        await create(client, name, subjects=[f"{name}.*"], **counters)
    await create(
        client, "T", subjects=["T.*"], **counters,
        sources=[
            {"name": one, "subject_transforms": [{"src": f"{one}.*", "dest": "T.{{wildcard(1)}}"}]}
            for one in ("A", "B")
        ],
    )  # fmt: skip
    for at, (subject, added) in enumerate(
        [("A.x", "5"), ("B.x", "+7"), ("A.x", "-2"), ("T.x", "100"), ("A.y", "1")], 1
    ):
        seen.append(await publish(client, subject, b"", Nats_Incr=added))
        await info_at(client, "T", at)
    batch = {"Nats_Incr": "10", "Nats_Batch_Id": "b"}
    seen += [
        await publish(client, "A.x", b"", **batch, Nats_Batch_Sequence="1"),
        await publish(client, "A.x", b"", **batch, Nats_Batch_Sequence="2", Nats_Batch_Commit="1"),
    ]
    await info_at(client, "T", 7)
    for name, last in (("A", 5), ("B", 1), ("T", 7)):
        seen.append(await records(client, name, last))
    wrong: list[dict[str, str]] = [
        {}, {"Nats_Incr": "x"}, {"Nats_Incr": "1", "Nats_Rollup": "sub"},
        {"Nats_Incr": "1", "Nats_Expected_Last_Sequence": "7"},
    ]  # fmt: skip
    seen += [await publish(client, "T.x", b"", **headers) for headers in wrong]
    seen.append(await publish(client, "T.x", b"payload", Nats_Incr="1"))
    return seen


async def test_counters_add_up_over_sources_and_batches_as_at_the_reference(tmp_path: Path):
    ours, theirs = await both(tmp_path, counting)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert mine == wanted


FAR = "@at 2100-01-01T00:00:00Z"
SCHEDULES: list[tuple[str, dict[str, str]]] = [
    ("n.1", {"Nats_Schedule": FAR, "Nats_Schedule_Target": "n.2"}),
    ("n.1", {"Nats_Schedule": "bogus"}),
    ("n.1", {"Nats_Schedule": ""}),
    ("n.1", {"Nats_Schedule_Next": "purge"}),
    ("n.1", {"Nats_Scheduler": "x"}),
    ("n.1", {"Nats_Schedule_Next": "purge", "Nats_Scheduler": "n.9"}),
    ("s.1", {"Nats_Schedule": "@at x", "Nats_Schedule_Target": "t.1"}),
    ("s.1", {"Nats_Schedule": FAR}),
    *(
        ("s.1", {"Nats_Schedule": FAR, "Nats_Schedule_Target": target})
        for target in ("s.1", "other", "t.*", "t.1")
    ),
    *(
        ("s.1", {"Nats_Schedule": FAR, "Nats_Schedule_Target": "t.1", **more})
        for more in (
            {"Nats_Schedule_Source": "t.1"}, {"Nats_Schedule_Source": "other"},
            {"Nats_Schedule_TTL": "xx"}, {"Nats_Schedule_TTL": "5s"},
            {"Nats_Schedule_Rollup": "all"}, {"Nats_Rollup": "all"}, {"Nats_Rollup": "sub"},
        )
    ),
    *(
        ("s.1", {"Nats_Schedule": pattern, "Nats_Schedule_Target": "t.1", **more})
        for pattern, more in (
            ("@every 0.5s", {}), ("@every 1h", {"Nats_Schedule_Time_Zone": "UTC"}),
            ("@daily", {"Nats_Schedule_Time_Zone": "Nowhere/X"}),
            ("@yearly", {"Nats_Schedule_Time_Zone": "Europe/Berlin"}),
            ("* * * * *", {}), ("61 * * * * *", {}), ("0 0 0 31 2 *", {}),
            ("0 0 0 29 feb ?", {}), ("0 0 12 1-7/2,20 * mon-FRI", {}),
        )
    ),
    ("x", {"Nats_Schedule_Next": "2020-01-01T00:00:00Z", "Nats_Scheduler": "t.5"}),
    ("x", {"Nats_Schedule_Next": "purge", "Nats_Scheduler": "x"}),
    ("x", {"Nats_Schedule_Next": "purge", "Nats_Scheduler": "t.*"}),
    ("x", {"Nats_Scheduler": "t.5"}),
    ("x", {}),
    ("s.7", {"Nats_Schedule_Next": "purge", "Nats_Scheduler": "x"}),
    ("s.7", {"Nats_Schedule_Next": "purge", "Nats_Scheduler": "s.1"}),
    ("s.7", {"Nats_Stream_Source": "a 1 > > b"}),
]  # fmt: skip


async def scheduling(client: Client) -> list[Any]:
    made = await create(client, "S", subjects=["s.>", "t.>", "x"], allow_msg_schedules=True)
    await create(client, "N", subjects=["n.>"])
    seen = [made["config"]["allow_rollup_hdrs"]]
    seen += [await publish(client, subject, **headers) for subject, headers in SCHEDULES]
    seen.append(await records(client, "S", 20))
    update = {"name": "S", "subjects": ["s.>", "t.>", "x"]}
    seen.append(told(await api(client, "STREAM.UPDATE.S", update)))
    return seen


async def test_schedules_are_checked_and_stored_as_at_the_reference(tmp_path: Path):
    ours, theirs = await both(tmp_path, scheduling)
    named = [None, *SCHEDULES, "records", "update"]
    for case, mine, wanted in zip(named, ours, theirs, strict=True):
        assert (case, mine) == (case, wanted)


async def coming_true(client: Client) -> list[Any]:
    await create(client, "S", subjects=["s.>", "t.>"], allow_msg_schedules=True, allow_msg_ttl=True)
    past = "@at 2020-01-01T00:00:00Z"
    await publish(client, "s.src", b"source", X="y")
    await publish(
        client, "s.at", b"once", Nats_Schedule=past, Nats_Schedule_Target="t.at", H="v",
        Nats_Msg_Id="id", Nats_Schedule_TTL="50s",
    )  # fmt: skip
    await info_at(client, "S", 3)
    await publish(
        client, "s.from", b"own", Nats_Schedule=past, Nats_Schedule_Target="t.from",
        Nats_Schedule_Source="s.src", Nats_Schedule_Rollup="sub",
    )  # fmt: skip
    await info_at(client, "S", 5)
    return await records(client, "S", 6)


async def test_what_a_schedule_brings_forth_is_what_the_reference_brings_forth(tmp_path: Path):
    ours, theirs = await both(tmp_path, coming_true)
    assert ours == theirs
    assert [record[1] for record in ours] == ["s.src", "t.at", "t.from"]


async def test_mirrors_sources_and_schedules_go_on_after_a_restart(tmp_path: Path):
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start(), allow_reconnect=False)
    await create(client, "O", subjects=["o.*"])
    await create(client, "M", mirror={"name": "O"})
    await create(client, "T", sources=[{"name": "O"}])
    await publish(client, "o.1", b"one")
    await publish(client, "o.2", b"two")
    await info_at(client, "M", 2)
    await info_at(client, "T", 2)
    await api(client, "STREAM.MSG.DELETE.M", {"seq": 1})
    await api(client, "STREAM.PURGE.T")
    await client.close()
    await broker.stop()
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start(), allow_reconnect=False)
    await publish(client, "o.3", b"three")
    await info_at(client, "M", 3)
    await info_at(client, "T", 3)
    assert [(r[0], r[3]) for r in await records(client, "M", 3)] == [(2, b"two"), (3, b"three")]
    # All that the source had brought was purged, and still it is not taken in again.
    assert [(r[0], r[3]) for r in await records(client, "T", 4)] == [(3, b"three")]
    await client.close()
    await broker.stop()


async def test_a_mirror_answers_direct_gets_of_an_origin_that_is_gone(tmp_path: Path):
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start(), allow_reconnect=False)
    await create(client, "O", subjects=["o.*"], allow_direct=True)
    await publish(client, "o.1", b"one")
    for name in ("M", "N"):
        await create(client, name, mirror={"name": "O"})
        await info_at(client, name, 1)
    reply = await client.request("$JS.API.DIRECT.GET.O", b'{"seq":1}', timeout=5)
    assert (reply.headers or {})["Nats-Stream"] == "O"
    await api(client, "STREAM.DELETE.O")
    reply = await client.request("$JS.API.DIRECT.GET.O", b'{"seq":1}', timeout=5)
    assert (reply.data, (reply.headers or {})["Nats-Stream"] in "MN") == (b"one", True)
    for name in ("M", "N"):
        await api(client, f"STREAM.DELETE.{name}")
    with pytest.raises(nats.errors.NoRespondersError):
        await client.request("$JS.API.DIRECT.GET.O", b'{"seq":1}', timeout=5)
    await client.close()
    await broker.stop()


async def test_consumers_read_a_mirror_under_its_origin_s_sequences(tmp_path: Path):
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start(), allow_reconnect=False)
    await create(client, "O", subjects=["o.*"], first_seq=10)
    await create(client, "M", mirror={"name": "O", "filter_subject": "o.1"})
    for at in range(4):
        await publish(client, f"o.{at % 2}", b"%d" % at)
    await info_at(client, "M", 13)
    subscription = await client.jetstream().pull_subscribe("o.1", "c", "M")
    found = await subscription.fetch(2, timeout=10)
    assert [(m.metadata.sequence.stream, m.data) for m in found] == [(11, b"1"), (13, b"3")]
    await client.close()
    await broker.stop()


async def test_who_draws_from_a_work_queue_is_shown_as_a_consumer(tmp_path: Path):
    async def scenario(client: Client) -> list[Any]:
        config = {"retention": "workqueue", "subjects": ["o.*"]}
        await create(client, "O", **config)
        await api(
            client,
            "CONSUMER.CREATE.O.KEPT.o.kept",
            {
                "stream_name": "O",
                "config": {"name": "KEPT", "ack_policy": "explicit", "filter_subject": "o.kept"},
            },
        )
        await create(client, "T", sources=[{"name": "O", "filter_subject": "o.a"}])
        await publish(client, "o.a")
        await info_at(client, "T", 1)
        names = await api(client, "CONSUMER.NAMES.O")
        page = await api(client, "CONSUMER.NAMES.O", {"offset": 1})
        listed = await api(client, "CONSUMER.LIST.O")
        one = await api(client, f"CONSUMER.INFO.O.{names['consumers'][0]}")
        seen = [names["total"], page["total"], len(page["consumers"]), listed["total"]]
        for shown in (*listed["consumers"], one):
            config = {**shown["config"], "deliver_subject": "", "durable_name": "", "name": ""}
            seen += [shown["name"][:7], config.pop("metadata").keys(), config, {*shown}]
            seen += [shown["delivered"]["stream_seq"], shown["num_pending"]]
        account = await api(client, "INFO")
        return [*seen, account["consumers"]]

    ours, theirs = await both(tmp_path, scenario)
    assert ours == theirs
    assert ours[0] == 2
