"""Short JetStream sessions written by hand, each for one behaviour, played on both servers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compat.jetstream_sessions import RESTART, Session, Step
from compat.test_differential_jetstream import PACES, Pair, pair

__all__ = ["pair"]  # a fixture

NEXT = {"batch": 1, "no_wait": True}
SLOWLY = {"no_wait": False, "expires": 600_000_000, "idle_heartbeat": 250_000_000}  # two beats


def ask(api: str, body: dict[str, Any] | None = None) -> Step:
    return Step("ask", f"$JS.API.{api}", json.dumps(body).encode() if body else b"")


def publish(subject: str, *headers: tuple[str, str]) -> Step:
    return Step("ask", subject, b"payload", headers)


def stream(**config: Any) -> Step:
    return ask("STREAM.CREATE.@S", {"name": "@S", "subjects": ["@.x.*"], **config})


def consumer(name: str = "c", **config: Any) -> Step:
    asked = {"name": name, "ack_policy": "explicit", **config}
    return ask(f"CONSUMER.CREATE.@S.{name}", {"stream_name": "@S", "config": asked})


def pull(name: str = "c", **request: Any) -> Step:
    asked = {**NEXT, **request}
    body = json.dumps(asked).encode()
    return Step("pull", f"$JS.API.CONSUMER.MSG.NEXT.@S.{name}", body, (), asked["batch"])


def answer(body: bytes, back: int = 0) -> Step:
    return Step("ack", "", body, (), back)


INFO = ask("CONSUMER.INFO.@S.c")
THREE = (publish("@.x.a"), publish("@.x.b"), publish("@.x.a"))
PAUSE = ask("CONSUMER.PAUSE.@S.c", {"pause_until": "2100-01-01T00:00:00Z"})
WITHOUT_2 = (stream(), *THREE, ask("STREAM.MSG.DELETE.@S", {"seq": 2}))
NOTHING_PURGED = (ask("STREAM.PURGE.@S", {"seq": 1}), INFO, answer(b"+ACK"), INFO)
ROLLS = stream(allow_rollup_hdrs=True)

SESSIONS = {
    "a time below zero is over at once, whether there is something or not": [
        *(stream(), consumer(), pull(no_wait=False, expires=-1), pull(expires=-(10**12))),
        *(*THREE, pull(no_wait=False, expires=-1, batch=2), pull(expires=-1, max_bytes=500), INFO),
    ],
    "an update names counters with delete markers before replicas": [
        stream(),
        ask(
            "STREAM.UPDATE.@S",
            {
                "name": "@S",
                "subjects": ["@.x.*"],
                "num_replicas": 3,
                "subject_delete_marker_ttl": 60_000_000_000,
                "allow_msg_counter": True,
            },
        ),
    ],
    "a heartbeat below zero is none": [
        *(stream(), consumer(), pull(idle_heartbeat=-1)),
        pull(no_wait=False, idle_heartbeat=-1, expires=300_000_000),
        *(*THREE, pull(idle_heartbeat=-(10**12)), INFO),
    ],
    "a -NAK of the last delivery is given up with the next request": [
        *(stream(), *THREE, consumer(max_deliver=2), pull(), answer(b"-NAK")),
        *(pull(), answer(b"-NAK"), INFO, pull(), INFO),
    ],
    "who does not wait is sent away when it is the turn of others": [
        *(stream(), *THREE, consumer(priority_groups=["g"], priority_policy="overflow")),
        *(pull(group="g", min_pending=50), pull(group="g", min_pending=50, expires=200_000_000)),
    ],
    "who does not wait is sent away while another is pinned": [
        *(stream(), *THREE, consumer(priority_groups=["g"], priority_policy="pinned_client")),
        *(pull(group="g"), pull(group="g")),
    ],
    "who does not wait stays while acks are missing": [
        *(stream(), *THREE),
        consumer(priority_groups=["g"], priority_policy="overflow", max_ack_pending=1),
        *(pull(group="g"), pull(group="g", min_pending=50), INFO),
    ],
    "a purge of one pending record is told of": [
        *(stream(), *THREE, consumer(), pull(batch=3)),
        *(ask("STREAM.PURGE.@S", {"filter": "@.x.b"}), INFO),
    ],
    "a purge of one pending record is told of while somebody waits for more": [
        *(stream(), publish("@.x.b"), consumer()),
        Step("pull", "$JS.API.CONSUMER.MSG.NEXT.@S.c", b'{"batch":2}', (), 2),
        *(ask("STREAM.PURGE.@S", {"filter": "@.*.b", "seq": 5}), INFO),
    ],
    "a purge of several pending records is not told of": [
        *(stream(), *THREE, consumer(), pull(batch=3)),
        *(ask("STREAM.PURGE.@S", {"filter": "@.x.a"}), INFO),
    ],
    "a purge that keeps all but one is told of where nothing is filtered": [
        *(stream(), *THREE, consumer(), consumer("d", filter_subject="@.x.a")),
        *(pull(batch=3), pull("d", batch=2), ask("STREAM.PURGE.@S", {"keep": 2}), INFO),
    ],
    "who makes a push consumer hears of it before its deliveries": [
        *(stream(), *THREE, Step("listen", "@.push"), consumer(deliver_subject="@.push")),
        *(Step("gather"), INFO, consumer(deliver_subject="@.push", max_ack_pending=9), INFO),
    ],
    "what was given up is counted until its record is gone": [
        *(stream(), *THREE, consumer(max_deliver=2), pull(), answer(b"-NAK"), pull()),
        *(answer(b"-NAK"), pull(), INFO, ask("STREAM.MSG.DELETE.@S", {"seq": 1}), INFO),
    ],
    "what was given up is counted until a purge": [
        *(stream(), *THREE, consumer(max_deliver=2), pull(), answer(b"-NAK"), pull()),
        *(answer(b"-NAK"), pull(batch=2), INFO, ask("STREAM.PURGE.@S"), INFO),
    ],
    "what was given up is not counted below the first record": [
        *(stream(), *THREE, consumer(max_deliver=2), pull(), answer(b"-NAK"), pull()),
        *(answer(b"-NAK"), pull(batch=2), INFO, ask("STREAM.PURGE.@S", {"seq": 3}), INFO),
    ],
    "what is allowed once is counted as given up once more is allowed": [
        *(stream(), *THREE, consumer(max_deliver=1), pull(), answer(b"-NAK"), pull(), INFO),
        *(consumer(), INFO, consumer(max_deliver=2), INFO),
    ],
    "a purge leaves the floor where later deliveries are answered too": [
        *(stream(), *THREE, consumer(), pull(batch=3), answer(b"+ACK"), publish("@.x.b"), pull()),
        *(ask("STREAM.PURGE.@S", {"seq": 3}), INFO, answer(b"+ACK"), INFO),
    ],
    "a purge leaves the floor behind what the filter leaves out": [
        *(stream(), *THREE, consumer(filter_subject="@.x.a"), pull(batch=2)),
        *(ask("STREAM.PURGE.@S", {"seq": 2}), INFO),
    ],
    "a purge is the floor where all are acked": [
        *(stream(), *THREE, consumer(ack_policy="all", filter_subject="@.x.a"), pull(batch=2)),
        *(ask("STREAM.PURGE.@S", {"seq": 2}), INFO),
    ],
    "a roll-up of one pending record is told of": [
        *(ROLLS, *THREE, consumer(), consumer("d", filter_subject="@.x.b"), pull(batch=3)),
        *(pull("d"), publish("@.x.b", ("Nats-Rollup", "sub")), INFO),
    ],
    "a record deleted after its second delivery is told of": [
        *(stream(), *THREE, consumer(), pull(), answer(b"-NAK"), pull()),
        *(ask("STREAM.MSG.DELETE.@S", {"seq": 1}), INFO),
    ],
    "an ack of all is the floor, whatever was delivered again": [
        *(stream(), *THREE, consumer(ack_policy="all"), pull(batch=3), answer(b"-NAK", 1)),
        *(pull(), answer(b"+ACK", 2), INFO, answer(b"+ACK", 1), INFO, answer(b"+TERM", 3), INFO),
    ],
    "an ack of all is the floor, whatever the filter leaves out": [
        *(stream(), *THREE, consumer(ack_policy="all", filter_subject="@.x.a"), pull(batch=2)),
        *(answer(b"+ACK", 1), INFO, answer(b"+NXT"), INFO),
    ],
    "a deleted record acks all before it where all are acked": [
        *(stream(), *THREE, consumer(ack_policy="all"), pull(batch=3), answer(b"-NAK", 2)),
        *(pull(), ask("STREAM.MSG.DELETE.@S", {"seq": 3}), INFO),
    ],
    "filters of an update match what comes after the end that was seen": [
        *(stream(), *THREE, consumer(filter_subject="@.x.b"), pull(batch=3), INFO),
        *(consumer(filter_subject="@.x.a"), INFO, publish("@.x.a"), pull(batch=3), INFO),
    ],
    "a purge moves a consumer to where it has looked": [
        *(stream(), *THREE, consumer(filter_subject="@.none"), pull(expires=100_000_000)),
        *(publish("@.x.b"), INFO, ask("STREAM.PURGE.@S", {"seq": 2}), INFO),
    ],
    "a heartbeat tells up to where the stream was read": [
        *(stream(), publish("@.x.a"), consumer(), consumer("d", filter_subject="@.x.b")),
        *(ask("STREAM.MSG.DELETE.@S", {"seq": 1}), publish("@.x.a"), publish("@.x.b")),
        *(pull("d", batch=3, **SLOWLY), ask("STREAM.MSG.DELETE.@S", {"seq": 3})),
        *(pull(batch=3, **SLOWLY), pull("d", batch=3, **SLOWLY)),
    ],
    "an ack of what was refused is measured": [
        *(stream(), *THREE, consumer(sample_freq="100"), pull(), answer(b"-NAK"), answer(b"+ACK")),
        *(pull(), INFO),
    ],
    "headers alone are counted as they go": [
        *(stream(), *THREE, publish("@.x.a", ("A", "b")), consumer(headers_only=True)),
        *(
            pull(max_bytes=150),
            pull(max_bytes=150),
            pull(batch=2, max_bytes=200),
            pull(max_bytes=9),
        ),
    ],
    "a refused delivery comes again at once, whatever progress is told of it": [
        *(stream(), *THREE, consumer(), pull(), answer(b"-NAK"), answer(b"+WPI"), pull(), INFO),
    ],
    "a request whose bytes are used up is over": [
        *(stream(), *(publish(f"@.x.{name}") for name in "aa"), consumer()),
        *(
            pull(no_wait=False, batch=5, expires=150_000_000, max_bytes=most)
            for most in range(52, 62)
        ),
        INFO,
    ],
    "who begins with the newest of nothing begins before the end": [
        *(stream(), *THREE),
        consumer("d", filter_subject="@.x.none", deliver_policy="last_per_subject"),
        consumer("e", filter_subject="@.x.none", deliver_policy="last"),
        consumer("f", filter_subject="@.x.b", deliver_policy="last"),
        *(publish("@.x.none"), pull("d"), pull("e"), pull("f")),
    ],
    "the newest of each are all where a stream holds no others": [
        *(stream(max_msgs_per_subject=1), *THREE),
        consumer(filter_subject="@.x.a", deliver_policy="last_per_subject"),
        pull(batch=3),
    ],
    "who waits while acks are missing waits when a pause begins": [
        *(stream(), *THREE, consumer(max_ack_pending=1), pull(batch=3)),
        *(PAUSE, INFO, answer(b'-NAK {"delay":60000000000}'), INFO),
    ],
    "an ack that makes room sends who does not wait away in a pause": [
        *(stream(), *THREE, consumer(max_ack_pending=1), pull(batch=3), PAUSE, INFO),
        *(answer(b"+ACK"), INFO),
    ],
    "a refused delivery sends who does not wait away in a pause": [
        *(stream(), *THREE, consumer(max_ack_pending=1), pull(batch=3), PAUSE, INFO),
        *(answer(b"-NAK"), INFO),
    ],
    "an ack that makes no room leaves who does not wait in line": [
        *(stream(), *THREE[:2], consumer(max_ack_pending=2), pull(batch=3)),
        *(ask("STREAM.PURGE.@S"), answer(b"+TERM"), INFO, answer(b"+ACK", 1), INFO),
    ],
    "the ack of one of several that are allowed sends who does not wait away": [
        *(stream(), *THREE[:2], consumer(max_ack_pending=2), pull(batch=3)),
        *(answer(b"+ACK"), INFO),
    ],
    "what is gone before a record that only another may have was looked at": [
        *WITHOUT_2,
        consumer(priority_groups=["g"], priority_policy="pinned_client"),
        *(pull(group="g"), pull(group="g", expires=200_000_000), *NOTHING_PURGED),
        *(ask("CONSUMER.RESET.@S.c"), INFO),
    ],
    "what is gone before a record that is too large was looked at": [
        *(*WITHOUT_2, consumer(), pull(), pull(max_bytes=1), *NOTHING_PURGED),
        *(ask("CONSUMER.RESET.@S.c"), INFO),
    ],
    "what is gone was not looked at while acks are missing": [
        *WITHOUT_2,
        consumer(priority_groups=["g"], priority_policy="pinned_client", max_ack_pending=1),
        *(pull(group="g"), pull(group="g", expires=200_000_000), *NOTHING_PURGED),
    ],
    "what came for others while somebody waits is matched by new filters": [
        *(stream(), consumer(filter_subject="@.x.none")),
        Step("pull", "$JS.API.CONSUMER.MSG.NEXT.@S.c", b"", (), 1),
        *(*THREE, consumer(filter_subject="@.x.b"), pull(), INFO),
    ],
    "a roll-up for others leaves a consumer before it": [
        *(ROLLS, *THREE, consumer(filter_subject="@.x.none")),
        Step("pull", "$JS.API.CONSUMER.MSG.NEXT.@S.c", b"", (), 1),
        *(publish("@.x.a", ("Nats-Rollup", "all")), ask("CONSUMER.RESET.@S.c"), INFO),
    ],
    "after a restart new filters match what was looked at before": [
        *(stream(), *THREE, consumer(durable_name="c", filter_subject="@.x.b")),
        *(pull(batch=2, expires=100_000_000), answer(b"+ACK"), Step(RESTART)),
        *(ask("STREAM.PURGE.@S", {"keep": 2}), INFO),
        *(consumer(durable_name="c", filter_subject="@.x.*"), INFO, pull(batch=3), INFO),
    ],
    "an unknown pin is no matter while there is nothing to deliver": [
        *(stream(), consumer(priority_groups=["g"], priority_policy="pinned_client")),
        pull(group="g", id="someone", no_wait=False, expires=100_000_000),
        *(publish("@.x.a"), pull(group="g", id="someone")),
    ],
    "a late ack of what was looked at again is confirmed": [
        *(stream(), publish("@.x.a"), consumer(), pull(), answer(b"+ACK")),
        *(ask("STREAM.MSG.DELETE.@S", {"seq": 1}), ask("CONSUMER.RESET.@S.c", {"seq": 1})),
        *(answer(b"+ACK"), pull(no_wait=False, expires=100_000_000), answer(b"+ACK")),
    ],
    "a consumer in memory is where a reset puts it": [
        *(stream(storage="memory", max_msgs=2), *THREE, consumer()),
        *(ask("CONSUMER.RESET.@S.c", {"seq": 1}), INFO, pull(), INFO),
    ],
    "who does not wait for nothing hears so, however many wait": [
        *(stream(), consumer(max_waiting=1)),
        Step("pull", "$JS.API.CONSUMER.MSG.NEXT.@S.c", b"", (), 1),
        *(pull(), pull(no_wait=False, expires=100_000_000)),
    ],
    "refused deliveries come again in the order of refusals": [
        *(stream(), *THREE, consumer(), pull(batch=3), answer(b"-NAK"), answer(b"-NAK", 2)),
        *(pull(batch=3), INFO),
    ],
    "an ack that asks for more is answered in a pause": [
        *(stream(), *THREE, consumer(), pull(), PAUSE),
        *(answer(b'+NXT {"batch":1,"no_wait":true}'), INFO),
    ],
    "a shorter wait for acks counts for what was delivered before": [
        *(stream(), *THREE, consumer(ack_wait=60 * 10**9), pull()),
        *(consumer(ack_wait=1000, max_ack_pending=1), pull(no_wait=False, expires=400_000_000)),
    ],
    "a purge of nothing lets what was refused wait for its time": [
        *(stream(), *THREE, consumer(), pull(batch=2), answer(b"-NAK")),
        *(ask("STREAM.PURGE.@S", {"seq": 1}), pull(batch=3), INFO),
    ],
    "a consumer in memory without deliveries shows how far it has read": [
        *(stream(), *THREE, consumer(mem_storage=True, filter_subject="@.none")),
        *(INFO, pull(expires=100_000_000), INFO),
    ],
    "a consumer in memory does not look at what others want": [
        *(stream(), consumer(mem_storage=True, filter_subject="@.none")),
        Step("pull", "$JS.API.CONSUMER.MSG.NEXT.@S.c", b"", (), 1),
        *(*THREE, INFO, pull(expires=100_000_000), INFO),
    ],
    "a request that does not wait stands behind one that wants all there is": [
        *(stream(), consumer(), Step("pull", "$JS.API.CONSUMER.MSG.NEXT.@S.c", b"", (), 1)),
        *(PAUSE, publish("@.x.a"), pull(), INFO),
    ],
    "a consumer that an update gives pins keeps them for their time": [
        *(stream(), *THREE, consumer()),
        consumer(priority_groups=["g"], priority_policy="pinned_client"),
        *(pull(group="g"), pull(group="g"), INFO),
    ],
    "a reset after all was answered goes on behind what was looked at": [
        *(stream(), *THREE, consumer(filter_subject="@.x.b"), pull(), pull(), answer(b"+ACK")),
        *(ask("CONSUMER.RESET.@S.c"), INFO),
    ],
    "a reset to the second record delivers from there": [
        *(stream(), *THREE, consumer(), pull(), ask("CONSUMER.RESET.@S.c", {"seq": 2})),
        *(INFO, pull(batch=3), INFO),
    ],
    "a purge moves a consumer of its subjects behind the end": [
        *(stream(), *THREE, consumer(filter_subject="@.x.none")),
        *(ask("STREAM.PURGE.@S", {"filter": "@.x.none"}), consumer(filter_subject="@.x.*")),
        *(INFO, publish("@.x.a"), pull(batch=3), INFO),
    ],
    "an ack after a reset is no activity": [
        *(stream(), *THREE, consumer(ack_policy="all"), pull(batch=3)),
        *(ask("CONSUMER.RESET.@S.c"), answer(b"+NXT"), answer(b"+ACK"), INFO),
    ],
    "a request in no group looks at what is gone": [
        *(stream(), *THREE[:2], consumer(priority_groups=["g"], priority_policy="pinned_client")),
        ask("STREAM.MSG.DELETE.@S", {"seq": 2}),
        Step("pull", "$JS.API.CONSUMER.MSG.NEXT.@S.c", b"2", (), 2),
        *(ask("STREAM.PURGE.@S", {"seq": 1}), INFO),
    ],
    "nobody is pinned during a pause": [
        *(stream(), *THREE),
        consumer(
            priority_groups=["g"],
            priority_policy="pinned_client",
            pause_until="2100-01-01T00:00:00Z",
        ),
        *(pull(group="g"), INFO),
    ],
    "a pinned client that reads headers alone hears of the size first": [
        *(stream(), *THREE),
        consumer(priority_groups=["g"], priority_policy="pinned_client", headers_only=True),
        pull(group="g"),
    ],
    "a pedantic request is refused for the copies before the placement": [
        stream(pedantic=True, republish={"dest": "@.r.>"}, placement={"preferred": "p"}),
    ],
    "what is answered leaves a sealed queue": [
        *(stream(retention="workqueue"), consumer(), *THREE, pull(batch=3)),
        ask(
            "STREAM.UPDATE.@S",
            {"name": "@S", "subjects": ["@.x.*"], "retention": "workqueue", "sealed": True},
        ),
        *(answer(b"+ACK", 1), ask("STREAM.INFO.@S"), answer(b"+TERM"), ask("STREAM.INFO.@S")),
    ],
    "a request in no group is served and holds no pin": [
        *(stream(), *THREE, consumer(priority_groups=["g"], priority_policy="pinned_client")),
        Step("pull", "$JS.API.CONSUMER.MSG.NEXT.@S.c", b"zz", (), 1),
        *(INFO, pull(group="g")),
    ],
    "the end of a batch of none is too large": [
        stream(allow_atomic=True),
        publish(
            "@.x.a",
            *(("Nats-Batch-Id", "b"), ("Nats-Batch-Sequence", "0"), ("Nats-Batch-Commit", "eob")),
        ),
    ],
    "who is pinned and cannot take the next record is pinned no longer": [
        *(stream(), *THREE, consumer(priority_groups=["g"], priority_policy="pinned_client")),
        *(pull(group="g", max_bytes=1), INFO, pull(group="g"), INFO),
    ],
    "an update of the group that a push consumer serves is told, and is there after a restart": [
        *(stream(), *THREE, consumer(durable_name="c", deliver_subject="@.push")),
        consumer(durable_name="c", deliver_subject="@.push", deliver_group="g"),
        *(INFO, Step(RESTART), INFO, Step("listen", "@.push", b"g"), Step("gather"), INFO),
    ],
    "what nobody waits for may live for as long as it says": [
        *(stream(retention="interest", allow_msg_ttl=True), publish("@.x.a", ("Nats-TTL", "bad"))),
        *(consumer(filter_subject="@.x.b"), publish("@.x.a", ("Nats-TTL", "1ms"))),
        *(publish("@.x.b", ("Nats-TTL", "bad")), ask("STREAM.INFO.@S", {"deleted_details": True})),
    ],
    "a full stream takes what nobody waits for": [
        *(stream(retention="interest", discard="new", max_msgs=1), publish("@.x.b")),
        *(consumer(filter_subject="@.x.a"), *THREE, publish("@.x.b"), ask("STREAM.INFO.@S")),
        *(pull(batch=2), INFO),
    ],
    "what nobody waits for goes out no second time": [
        *(stream(retention="interest", republish={"dest": "@.r.>"}), Step("listen", "@.r.>", b"")),
        *(publish("@.x.a"), consumer(filter_subject="@.x.b"), *THREE, Step("gather")),
    ],
    "a direct consumer counts for nothing, and is gone after a restart": [
        stream(max_consumers=1),
        consumer("m", direct=True, deliver_subject="@.mirror", inactive_threshold=65 * 10**9),
        *(consumer(durable_name="c"), consumer("d"), ask("STREAM.INFO.@S")),
        *(ask("CONSUMER.NAMES.@S"), ask("CONSUMER.LIST.@S"), ask("CONSUMER.INFO.@S.m")),
        *(Step(RESTART), ask("CONSUMER.INFO.@S.m"), ask("STREAM.INFO.@S")),
    ],
    "a threshold that an update leaves alone is as it was until a restart": [
        *(stream(), consumer(durable_name="c"), consumer(), consumer(metadata={"a": "b"}), INFO),
        *(Step(RESTART), INFO),
    ],
    "a consumer without a name has one after a restart": [
        stream(),
        ask(
            "CONSUMER.CREATE.@S",
            {"stream_name": "@S", "config": {"inactive_threshold": 65 * 10**9}},
        ),
        *(Step(RESTART), ask("CONSUMER.LIST.@S")),
    ],
    "counters with delete markers can be made, and not be updated": [
        stream(allow_msg_counter=True, subject_delete_marker_ttl=60 * 10**9),
        ask(
            "STREAM.UPDATE.@S",
            {
                "name": "@S",
                "subjects": ["@.x.*"],
                "allow_msg_counter": True,
                "subject_delete_marker_ttl": 60 * 10**9,
                "description": "words",
            },
        ),
    ],
}


@pytest.mark.timeout(120)
async def test_both_servers_agree(pair: Pair) -> None:
    differ: dict[str, list[str]] = {name: [] for name in SESSIONS}
    for pace in PACES[1:]:  # what differs at a hurried pace must differ at a slow one
        sessions = [Session(0, tuple(SESSIONS[name])) for name in differ]
        found = await pair.differences(sessions, pace) if sessions else []
        differ = {name: told for name, told in zip(differ, found, strict=True) if told}
    assert differ == {}
