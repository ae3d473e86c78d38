"""The same requests to the broker and to the real nats-server: the answers must be the same."""

import contextlib
import json
import re
from pathlib import Path
from typing import Any

from jetstream_broker import Broker
from nats.aio.client import Client

import nats
from support.nats_server import nats_server

NANO = 10**9
LONG_AGO = "2020-01-01T00:00:00Z"
CONSUMER = {"durable_name": "C", "ack_policy": "explicit"}
ORDERS = {"name": "S", "subjects": ["s.*"]}


def make(name: str, **config: object) -> tuple[str, Any]:
    return f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": {"name": name, **config}}


REQUESTS: list[tuple[str, Any]] = [
    ("STREAM.CREATE.S", ORDERS),
    ("STREAM.CREATE.S", ORDERS),
    ("STREAM.CREATE.S", {**ORDERS, "max_msgs": 5}),
    ("STREAM.CREATE.S", {"name": "T"}),
    ("STREAM.CREATE.T", {"name": "T", "subjects": ["s.a"]}),
    ("STREAM.CREATE.T", {"name": "T", "bogus": 1}),
    ("STREAM.CREATE.T", {"name": "T", "num_replicas": 3}),
    ("STREAM.CREATE.T", {"name": "T", "max_age": 3}),
    ("STREAM.CREATE.T", {"name": "T", "subjects": ["a.*", "a.b"]}),
    ("STREAM.CREATE.T", {"name": "T", "sealed": True}),
    ("STREAM.CREATE.T", {"name": "T", "retention": "foo"}),
    ("STREAM.CREATE.T", b"{"),
    ("STREAM.CREATE.T", b""),
    ("STREAM.CREATE.T/x", {"name": "T/x"}),
    ("STREAM.CREATE.T*", {"name": "T*"}),
    ("STREAM.CREATE.T", {"name": "T", "compression": "zip"}),
    ("STREAM.CREATE.T", {"name": "T", "mirror": {"name": "S", "filter_subject": "a..b"}}),
    ("STREAM.CREATE.S", {"name": "S", "sources": [{"name": "S"}]}),
    ("STREAM.UPDATE.S", b""),
    ("STREAM.UPDATE.S", {**ORDERS, "description": "hi", "metadata": {"a": "b"}}),
    ("STREAM.UPDATE.S", {**ORDERS, "storage": "memory"}),
    ("STREAM.UPDATE.Z", {"name": "Z"}),
    ("STREAM.INFO.S", b""),
    ("STREAM.INFO.S", {"subjects_filter": ">"}),
    ("STREAM.INFO.Z", b""),
    ("STREAM.NAMES", b""),
    ("STREAM.NAMES", {"offset": 9}),
    ("STREAM.NAMES", {"subject": "s.a"}),
    ("STREAM.NAMES", b"{"),
    ("STREAM.LIST", b""),
    ("STREAM.MSG.GET.S", {"seq": 1}),
    ("STREAM.MSG.GET.S", {"seq": 99}),
    ("STREAM.MSG.GET.S", {"last_by_subj": "s.a"}),
    ("STREAM.MSG.GET.S", {"next_by_subj": "s.b", "seq": 2}),
    ("STREAM.MSG.GET.S", {}),
    ("STREAM.MSG.GET.S", {"seq": 1, "last_by_subj": "s.a"}),
    ("STREAM.MSG.GET.Z", {"seq": 1}),
    ("STREAM.MSG.DELETE.S", {"seq": 2}),
    ("STREAM.MSG.DELETE.S", {"seq": 2}),
    ("STREAM.MSG.DELETE.S", {"seq": 100}),
    ("STREAM.MSG.DELETE.S", {}),
    ("STREAM.INFO.S", {"deleted_details": True}),
    ("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": CONSUMER}),
    ("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": CONSUMER}),
    ("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": {**CONSUMER, "ack_policy": "none"}}),
    (
        "CONSUMER.CREATE.S.C",
        {"stream_name": "S", "config": {**CONSUMER, "max_deliver": 3}, "action": "create"},
    ),
    ("CONSUMER.CREATE.S.N", {"stream_name": "S", "config": {"name": "N"}, "action": "update"}),
    ("CONSUMER.DURABLE.CREATE.S.D", {"stream_name": "S", "config": {**CONSUMER}}),
    ("CONSUMER.DURABLE.CREATE.S.D", {"stream_name": "S", "config": {"ack_policy": "all"}}),
    make("D/D"),
    ("CONSUMER.CREATE.S", {"stream_name": "S", "config": {"name": "D\\D"}}),
    ("CONSUMER.CREATE.S.D", {"stream_name": "S", "config": {"name": "called otherwise"}}),
    ("CONSUMER.DELETE.S.D", b""),
    (
        "CONSUMER.DURABLE.CREATE.S.D",
        {"stream_name": "S", "config": {"durable_name": "D", "name": "called otherwise"}},
    ),
    ("CONSUMER.DELETE.S.D", b""),
    ("CONSUMER.CREATE.S.D", {"stream_name": "S", "config": {}, "action": "remove"}),
    ("CONSUMER.CREATE.S.E.x.y", {"stream_name": "S", "config": {"filter_subject": "x.z"}}),
    ("CONSUMER.CREATE.S.E", {"stream_name": "Z", "config": {}}),
    make("E", filter_subject="s.b", max_deliver=5, backoff=[NANO, 2 * NANO], ack_policy="all"),
    make("F", deliver_subject="d", idle_heartbeat=NANO, flow_control=True),
    make("X", opt_start_seq=4),
    make("X", deliver_policy="by_start_sequence"),
    make("X", deliver_policy="last_per_subject"),
    make("X", deliver_policy="by_start_time", opt_start_seq=4),
    make("X", deliver_policy="by_start_time", opt_start_seq=4, opt_start_time=LONG_AGO),
    make("X", filter_subject="a", filter_subjects=["b"]),
    make("X", filter_subjects=["a.*", "a.b"]),
    make("X", max_deliver=2, backoff=[1, 2, 3]),
    make("X", deliver_subject="a.*"),
    make("X", deliver_subject="s.q"),
    make("X", deliver_subject="q", max_waiting=5),
    make("X", flow_control=True),
    make("X", idle_heartbeat=NANO),
    make("X", deliver_subject="q", idle_heartbeat=5),
    make("X", deliver_subject="q", flow_control=True),
    make("X", rate_limit_bps=5),
    make("X", ack_wait=-1, ack_policy="explicit"),
    make("X", ack_policy="zz"),
    make("X", sample_freq="many"),
    make("X", sample_freq="-5"),
    make("X", sample_freq="%"),
    make("X", priority_policy="bogus"),
    make("X", priority_policy="overflow"),
    make("X", priority_groups=["g"]),
    make("X", priority_timeout=NANO),
    make("X", priority_policy="overflow", priority_groups=[""]),
    make("X", priority_policy="overflow", priority_groups=["a b"]),
    make("X", priority_policy="overflow", priority_groups=["g"], deliver_subject="q"),
    make("G", priority_policy="pinned_client", priority_groups=["g"], ack_policy="explicit"),
    make("H", pause_until="2100-01-01T00:00:00Z", sample_freq="20%", replay_policy="original"),
    make("I", deliver_subject="q", rate_limit_bps=1000, headers_only=True),
    make("J", max_batch=5, max_expires=NANO, max_bytes=99, max_waiting=3, metadata={"a": "b"}),
    ("CONSUMER.INFO.S.G", b""),
    ("CONSUMER.UNPIN.S.G", b""),
    ("CONSUMER.UNPIN.S.G", {"group": "a b"}),
    ("CONSUMER.UNPIN.S.G", {"group": "h"}),
    ("CONSUMER.UNPIN.S.G", {"group": "g"}),
    ("CONSUMER.UNPIN.S.G", {"group": "g", "bogus": 1}),
    ("CONSUMER.UNPIN.S.G", b"{"),
    ("CONSUMER.UNPIN.S.zz", {"group": "g"}),
    ("CONSUMER.PAUSE.S.G", {"pause_until": "2100-01-01T00:00:00Z"}),
    ("CONSUMER.INFO.S.G", b""),
    ("CONSUMER.PAUSE.S.G", b""),
    ("CONSUMER.PAUSE.S.G", {"pause_until": "2000-01-01T00:00:00Z"}),
    ("CONSUMER.PAUSE.S.zz", {"pause_until": "2000-01-01T00:00:00Z"}),
    ("CONSUMER.RESET.S.G", b""),
    ("CONSUMER.RESET.S.G", {"seq": 2}),
    ("CONSUMER.RESET.S.G", {"bogus": 1}),
    ("CONSUMER.RESET.S.G", b"{"),
    make("K", deliver_policy="new"),
    ("CONSUMER.RESET.S.K", {"seq": 2}),
    ("STREAM.LEADER.STEPDOWN.S", b""),
    ("CONSUMER.LEADER.STEPDOWN.S.G", b""),
    ("STREAM.PEER.REMOVE.S", {"peer": "x"}),
    ("STREAM.PEER.EVACUATE.S", {"peer": "x"}),
    ("STREAM.CANCEL_MOVE.S", b""),
    ("CONSUMER.NAMES.S", b""),
    ("CONSUMER.LIST.S", {"offset": 1}),
    ("CONSUMER.INFO.S.C", b""),
    ("CONSUMER.INFO.S.zz", b""),
    ("CONSUMER.INFO.Z.zz", b""),
    ("CONSUMER.DELETE.S.C", b""),
    ("CONSUMER.DELETE.S.C", b""),
    ("CONSUMER.NAMES.Z", b""),
    ("STREAM.PURGE.S", {"keep": 1}),
    ("STREAM.PURGE.S", {"seq": 1, "keep": 1}),
    ("STREAM.PURGE.S", {"filter": "zz"}),
    ("STREAM.PURGE.S", b""),
    ("STREAM.PURGE.Z", b""),
    ("STREAM.INFO.S", b""),
    ("STREAM.UPDATE.S", {**ORDERS, "sealed": True}),
    ("STREAM.PURGE.S", b""),
    ("STREAM.MSG.DELETE.S", {"seq": 4}),
    ("STREAM.DELETE.S", b"x"),
    ("STREAM.DELETE.S", b""),
    ("STREAM.DELETE.S", b""),
]

PULLS: list[bytes] = [
    b"",
    b"2",
    b'{"batch":2,"no_wait":true}',
    b'{"batch":2,"no_wait":true,"expires":300000000}',
    b'{"batch":5,"expires":200000000}',
    b'{"batch":5,"expires":1500000000,"idle_heartbeat":300000000}',
    b'{"batch":5,"expires":300000000,"idle_heartbeat":200000000}',
    b"{",
]


LIMITED = {"max_batch": 2, "max_expires": 90 * NANO, "max_bytes": 1000}
GROUPED: list[tuple[dict[str, Any], list[bytes]]] = [
    (
        {"priority_policy": "overflow", "priority_groups": ["g"]},
        [
            b'{"batch":1,"expires":200000000}',
            b'{"batch":1,"group":"h","expires":200000000}',
            b'{"batch":1,"group":"g","id":"x","expires":200000000}',
            b'{"batch":1,"group":"g","priority":11,"expires":200000000}',
            b'{"batch":1,"group":"g","min_pending":9,"expires":200000000}',
            b'{"batch":1,"group":"g","min_pending":3,"expires":200000000}',
            b'{"batch":1,"group":"g","min_ack_pending":1,"expires":200000000}',
        ],
    ),
    (
        {"priority_policy": "pinned_client", "priority_groups": ["g"]},
        [
            b'{"batch":1,"group":"g","min_pending":9,"expires":200000000}',
            b'{"batch":1,"group":"g","expires":200000000}',
            b'{"batch":1,"group":"g","expires":200000000}',
            b'{"batch":1,"group":"g","id":"wrong","expires":200000000}',
        ],
    ),
    (
        {"priority_policy": "prioritized", "priority_groups": ["g"]},
        [b'{"batch":2,"group":"g","priority":3,"expires":200000000}'],
    ),
    (
        LIMITED,
        [
            b'{"batch":3,"expires":200000000}',
            b'{"batch":1,"expires":91000000000}',
            b'{"batch":1,"expires":200000000,"max_bytes":1001}',
            b'{"batch":2,"expires":200000000,"max_bytes":80}',
            b'{"batch":2,"expires":200000000,"max_bytes":200}',
            b'{"batch":1,"expires":200000000,"max_bytes":900}',
        ],
    ),
    ({"deliver_subject": "elsewhere"}, [b""]),
    ({"headers_only": True}, [b"2"]),
]


def plain(answer: bytes) -> Any:
    """Return an answer without what differs from run to run."""
    text = re.sub(r'"20\d\d-[^"]*Z"', '"TIME"', answer.decode())
    text = re.sub(r'"pause_remaining":\d+', '"pause_remaining":1', text)
    shown = json.loads(text)
    if "cluster" in shown:
        shown["cluster"] = sorted(shown["cluster"])  # whose name differs
    return shown


async def api_answers(client: Client) -> list[tuple[str, Any, Any]]:
    answers: list[tuple[str, Any, Any]] = []
    for at, (subject, body) in enumerate(REQUESTS):
        if at == 1:
            for token in "abab":
                await client.request(f"s.{token}", b"x", timeout=10)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        reply = await client.request(f"$JS.API.{subject}", data, timeout=10)
        answers.append((subject, body, plain(reply.data)))
    return answers


async def pull_answers(client: Client) -> list[Any]:
    js = client.jetstream()
    await js.add_stream(name="P", subjects=["p"])
    for i in range(5):
        await js.publish("p", b"%d" % i)
    # Only now: the reference counts what arrives later a moment after it has arrived.
    await js.add_consumer("P", durable_name="c", ack_policy="explicit", max_waiting=3)
    seen = await pulled(client, "c", PULLS)
    for number, (config, bodies) in enumerate(GROUPED):
        config = {"name": f"c{number}", "ack_policy": "explicit", **config}
        request = json.dumps({"stream_name": "P", "config": config}).encode()
        await client.request(f"$JS.API.CONSUMER.CREATE.P.c{number}", request, timeout=10)
        seen += await pulled(client, f"c{number}", bodies)
    return seen


async def pulled(client: Client, consumer: str, bodies: list[bytes]) -> list[Any]:
    seen: list[Any] = []
    for number, body in enumerate(bodies):
        inbox = await client.subscribe(f"in.{consumer}.{number}")
        asked = json.loads(body) if body not in (b"", b"{") else 1
        wanted = asked if isinstance(asked, int) else asked["batch"]
        subject = f"$JS.API.CONSUMER.MSG.NEXT.P.{consumer}"
        await client.publish(subject, body, reply=f"in.{consumer}.{number}")
        patience = 20.0
        with contextlib.suppress(TimeoutError):
            while True:
                message = await inbox.next_msg(timeout=patience)
                reply = re.sub(r"\.\d{19}\.", ".TIME.", message.reply)
                headers = dict(message.headers or {})
                if "Nats-Pin-Id" in headers:
                    headers["Nats-Pin-Id"] = "PIN"
                found = (consumer, number, message.subject, reply, headers, message.data)
                # How many heartbeats there is time for depends on how busy the machine is.
                if headers.get("Status") != "100" or found not in seen:
                    seen.append(found)
                wanted -= "Status" not in headers
                if wanted == 0 or headers.get("Status", "100") != "100":
                    patience = 0.1  # that was the last, unless something comes that should not
        await inbox.unsubscribe()
    return seen


async def test_requests_and_pulls_are_answered_as_the_reference_answers(tmp_path: Path):
    broker = Broker(str(tmp_path / "ours"))
    with nats_server("-js", "-sd", str(tmp_path / "theirs")) as reference:
        answers = []
        for url in (broker.start(), reference.url):
            client = await nats.connect(url, allow_reconnect=False)
            answers.append((await api_answers(client), await pull_answers(client)))
            await client.close()
    await broker.stop()
    (ours, our_pulls), (theirs, their_pulls) = answers
    for mine, wanted in zip(ours, theirs, strict=True):
        assert mine == wanted
    for mine, wanted in zip(our_pulls, their_pulls, strict=True):
        assert mine == wanted
