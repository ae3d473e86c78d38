"""What streams do beyond limits: the same steps here and at the real nats-server."""

import asyncio
import base64
import contextlib
import json
import re
from pathlib import Path
from typing import Any

from jetstream_broker import Broker, both
from nats.aio.client import Client

import nats
from support.clients import flushed

NANO = 10**9


async def api(client: Client, subject: str, body: Any = b"") -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = await client.request(f"$JS.API.{subject}", data, timeout=10)
    answer = json.loads(re.sub(r'"20\d\d-[^"]*Z"', '"TIME"', reply.data.decode()))
    if "cluster" in answer:
        answer["cluster"] = sorted(answer["cluster"])
    return answer


async def publish(
    client: Client, subject: str, data: bytes = b"x", headers: dict[str, str] | None = None
) -> Any:
    reply = await client.request(subject, data, timeout=10, headers=headers)
    return json.loads(reply.data)


async def counts(client: Client, stream: str) -> tuple[int, int, int]:
    state = (await api(client, f"STREAM.INFO.{stream}"))["state"]
    return state["messages"], state["first_seq"], state["last_seq"]


async def settled(client: Client, stream: str, wanted: tuple[int, int, int]) -> tuple[int, ...]:
    """Return the counts once they are as wanted, or as they are after twenty seconds."""
    for _ in range(1000):
        if await counts(client, stream) == wanted:
            break
        await asyncio.sleep(0.02)
    return await counts(client, stream)


def consumer(name: str, **config: Any) -> tuple[str, Any]:
    config = {"name": name, "durable_name": name, "ack_policy": "explicit", **config}
    return f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config}


async def work_queue(client: Client) -> list[Any]:
    seen = [await api(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"],
                                                  "retention": "workqueue"})]  # fmt: skip
    seen += [await publish(client, subject) for subject in ("s.a", "s.b", "s.a")]
    for name, config in (
        ("n", {"ack_policy": "none"}),
        ("l", {"ack_policy": "all"}),
        ("d", {"deliver_policy": "new"}),
        ("a", {"filter_subject": "s.a"}),
        ("o", {}),
        ("p", {"filter_subject": "s.*"}),
        ("b", {"filter_subject": "s.b"}),
        ("b", {"filter_subject": "s.a"}),
    ):
        seen.append(await api(client, *consumer(name, **config)))
    js = client.jetstream()
    pull = await js.pull_subscribe_bind("a", "S")
    first, second = await pull.fetch(2, timeout=10)
    await first.ack_sync(timeout=10)
    seen.append(await settled(client, "S", (2, 2, 3)))
    await second.term()
    seen.append(await settled(client, "S", (1, 2, 3)))
    seen.append(await api(client, "CONSUMER.DELETE.S.b"))
    seen.append(await counts(client, "S"))
    changed = {"name": "S", "subjects": ["s.*"]}
    seen.append(await api(client, "STREAM.UPDATE.S", changed))
    return seen


async def test_a_work_queue_hands_each_message_out_once_as_the_reference_does(tmp_path: Path):
    ours, theirs = await both(tmp_path, work_queue)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert mine == wanted


async def interest(client: Client) -> list[Any]:
    wanted = {"name": "S", "subjects": ["s.*"], "retention": "interest"}
    seen = [await api(client, "STREAM.CREATE.S", wanted), await publish(client, "s.a")]
    seen.append(await settled(client, "S", (0, 2, 1)))
    await api(client, *consumer("a", filter_subject="s.a"))
    await api(client, *consumer("all"))
    seen += [await publish(client, subject) for subject in ("s.a", "s.b", "s.a")]
    js = client.jetstream()
    filtered = await (await js.pull_subscribe_bind("a", "S")).fetch(2, timeout=10)
    for message in filtered:
        await message.ack_sync(timeout=10)
    seen.append(await settled(client, "S", (3, 2, 4)))
    everything = await (await js.pull_subscribe_bind("all", "S")).fetch(2, timeout=10)
    for message in everything:
        await message.ack_sync(timeout=10)
    seen.append(await settled(client, "S", (1, 4, 4)))
    await api(client, "CONSUMER.DELETE.S.all")
    seen.append(await settled(client, "S", (0, 5, 4)))
    seen.append(await publish(client, "s.b"))
    seen.append(await settled(client, "S", (0, 6, 5)))
    seen.append(await publish(client, "s.a"))
    seen.append(await settled(client, "S", (1, 6, 6)))
    return seen


async def test_interest_keeps_a_message_until_the_last_consumer_acked_it(tmp_path: Path):
    ours, theirs = await both(tmp_path, interest)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert mine == wanted


async def test_messages_nobody_acks_are_let_go_once_they_are_delivered(tmp_path: Path):
    async def scenario(client: Client) -> list[Any]:
        wanted = {"name": "S", "subjects": ["s.*"], "retention": "interest"}
        await api(client, "STREAM.CREATE.S", wanted)
        inbox = await client.subscribe("in")
        await api(client, *consumer("p", deliver_subject="in", ack_policy="none"))
        for _ in range(3):
            await publish(client, "s.a")
            await inbox.next_msg(timeout=10)
        return [await settled(client, "S", (0, 4, 3))]

    ours, theirs = await both(tmp_path, scenario)
    assert ours == theirs == [(0, 4, 3)]


async def test_what_was_acked_and_what_was_not_survives_a_restart(tmp_path: Path):
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start(), allow_reconnect=False)
    await api(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"],
                                          "retention": "interest"})  # fmt: skip
    await api(client, *consumer("a"))
    await api(client, *consumer("b"))
    for _ in range(3):
        await publish(client, "s.a")
    js = client.jetstream()
    for name in ("a", "b"):
        messages = await (await js.pull_subscribe_bind(name, "S")).fetch(3, timeout=10)
        await messages[1].ack_sync(timeout=10)
        if name == "a":
            await messages[0].ack_sync(timeout=10)
    assert await settled(client, "S", (2, 1, 3)) == (2, 1, 3)
    await client.close()
    await broker.stop()
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start(), allow_reconnect=False)
    assert await counts(client, "S") == (2, 1, 3)
    await api(client, "CONSUMER.DELETE.S.b")
    assert await settled(client, "S", (1, 3, 3)) == (1, 3, 3)
    with contextlib.suppress(nats.errors.Error, TimeoutError):
        await client.close()
    await broker.stop()


CONFIGS: list[dict[str, Any]] = [
    {"placement": {"cluster": "x", "tags": ["a"]}},
    {"placement": {}},
    {"placement": {"preferred": "x"}},
    {"placement": {"bogus": 1}},
    {"subject_transform": {"src": "T", "dest": "U"}},
    {"subject_transform": {"src": "", "dest": "U.>"}},
    {"subject_transform": {"src": "a..b", "dest": "U"}},
    {"republish": {"dest": "rp.>"}},
    {"republish": {"src": "T", "dest": "x", "headers_only": True}},
    {"republish": {"src": "T", "dest": "T"}},
    {"republish": {"src": "a.*", "dest": "b.$2"}},
    {"republish": {}},
    {"republish": {"bogus": 1}},
    {"subject_delete_marker_ttl": NANO},
    {"subject_delete_marker_ttl": 10},
    {"subject_delete_marker_ttl": -10},
    {"subject_delete_marker_ttl": NANO, "deny_purge": True},
    {"consumer_limits": {"max_ack_pending": 5, "inactive_threshold": NANO}},
    {"consumer_limits": {"bogus": 5}},
    {"retention": "interest", "discard": "new"},
    {"mirror_direct": True},
    {"mirror": {"name": "S"}, "subjects": ["x"]},
    {"mirror": {"name": "S"}, "sources": [{"name": "S"}]},
    {"mirror": {"name": "S"}, "first_seq": 5},
    {"mirror": {"name": "S"}, "allow_msg_counter": True},
    {"allow_msg_counter": True},
    {"allow_msg_counter": True, "discard": "new"},
    {"allow_msg_counter": True, "allow_msg_ttl": True},
    {"allow_msg_counter": True, "retention": "interest"},
    {"allow_atomic": True},
    {"allow_atomic": True, "persist_mode": "async"},
    {"sources": [{"name": "T"}]},
    {"sources": [{"name": "a.b"}]},
    {"sources": [{"name": "S"}, {"name": "S"}]},
    {"sources": [{"name": "S", "bogus": 1}]},
    {"sources": [{"name": "S", "filter_subject": "a..b"}]},
    {
        "sources": [
            {
                "name": "S",
                "filter_subject": "x",
                "subject_transforms": [{"src": "x", "dest": "y"}],
            }
        ]
    },
    {
        "sources": [
            {
                "name": "S",
                "subject_transforms": [{"src": "s.a", "dest": "y"}, {"src": "s.*", "dest": "z"}],
            }
        ]
    },
]


async def configs(client: Client) -> list[Any]:
    seen = []
    for asked in CONFIGS:
        seen.append((asked, await api(client, "STREAM.CREATE.T", {"name": "T", **asked})))
        await api(client, "STREAM.DELETE.T")
    return seen


async def test_features_are_accepted_filled_in_and_refused_as_by_the_reference(tmp_path: Path):
    ours, theirs = await both(tmp_path, configs)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert mine == wanted


async def test_a_transform_that_cannot_work_is_refused_with_the_codes_of_the_reference(
    tmp_path: Path,
):
    async def scenario(client: Client) -> Any:
        asked = {"name": "T", "subject_transform": {"src": "T.*", "dest": "U.$2"}}
        error = (await api(client, "STREAM.CREATE.T", asked))["error"]
        return error["code"], error["err_code"]

    ours, theirs = await both(tmp_path, scenario)
    assert ours == theirs == (400, 10156)


async def heard(inbox: Any, count: int) -> list[Any]:
    seen = []
    for _ in range(count):
        message = await inbox.next_msg(timeout=10)
        headers = dict(message.headers or {})
        if "Nats-Time-Stamp" in headers:
            headers["Nats-Time-Stamp"] = "TIME"
        seen.append((message.subject, headers, message.data))
    return seen


async def rewriting(client: Client) -> list[Any]:
    asked = {
        "name": "S",
        "subjects": ["s.*", "plain"],
        "subject_transform": {"src": "s.*", "dest": "t.{{wildcard(1)}}.new"},
        "republish": {"src": "t.>", "dest": "rp.>"},
    }
    seen = [await api(client, "STREAM.CREATE.S", asked)]
    inbox = await client.subscribe("rp.>")
    await flushed(client)
    seen.append(await publish(client, "s.a", b"body", {"H": "v"}))
    seen += [await publish(client, subject, b"body") for subject in ("s.b", "s.a", "plain")]
    seen.append(await publish(client, "s.a", b"", {"Nats-Expected-Last-Subject-Sequence": "9"}))
    seen += await heard(inbox, 3)
    shown = await api(client, "STREAM.INFO.S", {"subjects_filter": ">"})
    seen.append(shown["state"]["subjects"])
    asked |= {"republish": {"src": "plain", "dest": "rp.plain", "headers_only": True}}
    del asked["subject_transform"]
    await api(client, "STREAM.UPDATE.S", asked)
    seen += [await publish(client, "s.a"), await publish(client, "plain", b"12345")]
    seen += await heard(inbox, 1)
    return seen


async def test_subjects_are_rewritten_and_records_republished_as_by_the_reference(tmp_path: Path):
    ours, theirs = await both(tmp_path, rewriting)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert mine == wanted


SOURCES: list[list[dict[str, Any]]] = [
    [{"name": "S"}],
    [{"name": "S", "opt_start_seq": 3}],
    [{"name": "S", "filter_subject": "s.a"}],
    [{"name": "S", "subject_transforms": [{"src": "s.*", "dest": "y.{{wildcard(1)}}"}]}],
]


async def sourcing(client: Client) -> list[Any]:
    seen: list[Any] = []
    await api(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"]})
    for subject in ("s.a", "s.b", "s.a"):
        await publish(client, subject, b"x", {"H": "v", "Nats-Expected-Stream": "S"})
    for feeds in SOURCES:
        made = await api(client, "STREAM.CREATE.T", {"name": "T", "sources": feeds})
        seen.append(made["config"])
        wanted = (3, 1, 2, 3)[SOURCES.index(feeds)]
        await settled(client, "T", (wanted, 1, wanted))
        await publish(client, "s.a", b"later")
        seen.append(await settled(client, "T", (wanted + 1, 1, wanted + 1)))
        for seq in range(1, wanted + 2):
            stored = await api(client, "STREAM.MSG.GET.T", {"seq": seq})
            block = base64.b64decode(stored.get("message", {}).pop("hdrs", ""))
            # The last word names the origin's incarnation, in words of each server's own.
            seen.append((stored, re.sub(rb"(Nats-Stream-Source: .*) \S+\r", rb"\1\r", block)))
        info = await api(client, "STREAM.INFO.T")
        for feed in info["sources"]:
            feed["active"] = min(feed["active"], 0)
        seen.append(info["sources"])
        await api(client, "STREAM.DELETE.T")
        await api(client, "STREAM.DELETE.S")
        await api(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"]})
        for subject in ("s.a", "s.b", "s.a"):
            await publish(client, subject)
    return seen


async def test_a_stream_takes_in_its_sources_as_at_the_reference(tmp_path: Path):
    ours, theirs = await both(tmp_path, sourcing)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert mine == wanted


async def test_a_restart_goes_on_behind_the_newest_record_of_each_source(tmp_path: Path):
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start(), allow_reconnect=False)
    for name in ("A", "B"):
        await api(client, f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.*"]})
    feeds = [{"name": "A"}, {"name": "B", "filter_subject": "B.x"}, {"name": "B"}]
    made = await api(client, "STREAM.CREATE.T", {"name": "T", "sources": feeds[:2]})
    assert "error" not in made
    for _ in range(300):
        await client.publish("A.x", b"a")
    await publish(client, "B.x")
    await publish(client, "B.y")
    assert await settled(client, "T", (301, 1, 301)) == (301, 1, 301)
    await client.close()
    await broker.stop()
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start(), allow_reconnect=False)
    await publish(client, "A.x")
    assert await settled(client, "T", (302, 1, 302)) == (302, 1, 302)
    await api(client, "STREAM.UPDATE.T", {"name": "T", "sources": feeds})
    assert await settled(client, "T", (304, 1, 304)) == (304, 1, 304)
    cycle = await api(client, "STREAM.UPDATE.A", {"name": "A", "subjects": ["A.*"],
                                                  "sources": [{"name": "T"}]})  # fmt: skip
    assert cycle["error"]["description"] == "detected cycle"
    await client.close()
    await broker.stop()


async def counting(client: Client) -> list[Any]:
    await api(client, "STREAM.CREATE.C", {"name": "C", "subjects": ["c.*"],
                                          "allow_msg_counter": True})  # fmt: skip
    seen = []
    for subject, incr, data in (
        ("c.a", "+1", b""),
        ("c.a", "5", b""),
        ("c.b", "-7", b""),
        ("c.a", "99999999999999999999999", b""),
        ("c.a", "x", b""),
        ("c.a", "", b""),
        ("c.a", "1.5", b""),
        ("c.a", "1", b"body"),
    ):
        seen.append(await publish(client, subject, data, {"Nats-Incr": incr} if incr else None))
    seen += [await api(client, "STREAM.MSG.GET.C", {"seq": seq}) for seq in (1, 4)]
    changed = {"name": "C", "subjects": ["c.*"]}
    seen.append(await api(client, "STREAM.UPDATE.C", changed))
    return seen


async def test_counters_count_as_those_of_the_reference(tmp_path: Path):
    ours, theirs = await both(tmp_path, counting)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert mine == wanted


BATCHES: list[list[dict[str, str]]] = [
    [{"seq": "1"}, {"seq": "2"}, {"seq": "3", "commit": "1"}],
    [{"seq": "1"}, {"seq": "2", "commit": "eob"}],
    [{"seq": "1", "commit": "1"}],
    [{"seq": "1", "commit": "eob"}],
    [{"seq": "2"}],
    [{"seq": "1001"}],
    [{"seq": "1"}, {"seq": "3"}, {"seq": "2"}],
    [{"seq": "1"}, {"seq": "2", "commit": "x"}],
    [{}],
    [{"seq": "1", "Nats-Expected-Last-Sequence": "99"}, {"seq": "2", "commit": "1"}],
    [{"seq": "1", "Nats-Expected-Last-Msg-Id": "9"}, {"seq": "2", "commit": "1"}],
    [{"seq": "1", "Nats-Msg-Id": "m"}, {"seq": "2", "Nats-Msg-Id": "m", "commit": "1"}],
    [{"seq": "1", "Nats-Msg-Id": "m"}, {"seq": "2", "commit": "1"}],
    [{"seq": "1", "Nats-Msg-Id": "m"}, {"seq": "2", "commit": "1"}],
    [{"seq": "1", "Nats-Rollup": "sub"}, {"seq": "2", "commit": "1"}],
]


async def batching(client: Client) -> list[Any]:
    asked = {"name": "B", "subjects": ["b.*"], "allow_atomic": True}
    seen = [await api(client, "STREAM.CREATE.B", asked)]
    for number, messages in enumerate(BATCHES):
        for message in messages:
            headers = {"Nats-Batch-Id": f"batch{number}"}
            for key, value in message.items():
                name = {"seq": "Nats-Batch-Sequence", "commit": "Nats-Batch-Commit"}.get(key, key)
                headers[name] = value
            reply = await client.request("b.a", b"x", timeout=10, headers=headers)
            seen.append((number, message, reply.data and json.loads(reply.data)))
        seen.append(await counts(client, "B"))
    headers = {"Nats-Batch-Id": "x" * 65, "Nats-Batch-Sequence": "1"}
    seen.append(await publish(client, "b.a", b"", headers))
    seen.append(await api(client, "STREAM.MSG.GET.B", {"seq": 3}))
    return seen


async def test_atomic_batches_are_kept_and_committed_as_at_the_reference(tmp_path: Path):
    ours, theirs = await both(tmp_path, batching)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert mine == wanted


async def test_the_first_message_gets_the_sequence_that_was_asked_for(tmp_path: Path):
    async def scenario(client: Client) -> list[Any]:
        asked = {"name": "F", "subjects": ["f"], "first_seq": 10}
        seen = [await api(client, "STREAM.CREATE.F", asked), await counts(client, "F")]
        seen += [await publish(client, "f"), await publish(client, "f"), await counts(client, "F")]
        seen.append(await api(client, "STREAM.UPDATE.F", {**asked, "first_seq": 5}))
        seen.append(await api(client, "STREAM.MSG.GET.F", {"seq": 1}))
        await api(client, "STREAM.PURGE.F")
        return [*seen, await counts(client, "F")]

    ours, theirs = await both(tmp_path, scenario)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert mine == wanted


async def test_a_stream_that_starts_late_does_so_after_restarts_too(tmp_path: Path):
    asked = {"name": "F", "subjects": ["f"], "first_seq": 10}
    for cycle in range(3):
        broker = Broker(str(tmp_path))
        client = await nats.connect(broker.start(), allow_reconnect=False)
        if cycle == 0:
            await api(client, "STREAM.CREATE.F", asked)
        kept = cycle - 1 if cycle else 0
        assert await counts(client, "F") == (kept, 10, 9 + kept)
        if cycle:
            assert (await publish(client, "f"))["seq"] == 10 + kept
        state = (await api(client, "STREAM.INFO.F"))["state"]
        assert "lost" not in state
        await client.close()
        await broker.stop()


async def test_a_stream_in_memory_goes_on_behind_what_it_may_have_given_out(tmp_path: Path):
    asked = {"name": "F", "subjects": ["f"], "first_seq": 10, "storage": "memory"}
    given = 9
    for cycle in range(3):
        broker = Broker(str(tmp_path))
        client = await nats.connect(broker.start(), allow_reconnect=False)
        if cycle == 0:
            await api(client, "STREAM.CREATE.F", asked)
        messages, first, last = await counts(client, "F")
        assert (messages, first) == (0, last + 1)
        assert last >= given
        given = (await publish(client, "f"))["seq"]
        assert given == last + 1
        await client.close()
        await broker.stop()


async def publishing_large_headers(client: Client) -> list[Any]:
    """Return what each of 20 publishers heard that wrote at once, the eleventh too much."""
    await api(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    inbox = client.new_inbox()
    answers = await client.subscribe(f"{inbox}.*")
    for at in range(20):
        headers = {"A": "b" * 70_000} if at == 10 else None
        await client.publish("s.a", b"%d" % at, reply=f"{inbox}.{at}", headers=headers)
    seen: list[Any] = []
    for _ in range(20):
        with contextlib.suppress(TimeoutError):
            answer = await answers.next_msg(timeout=10)
            seen.append((int(answer.subject.rpartition(".")[2]), json.loads(answer.data)))
    return [*sorted(seen, key=lambda one: one[0]), await counts(client, "S")]


async def test_headers_above_64_kib_cost_nobody_else_their_publish(tmp_path: Path):
    ours, theirs = await both(tmp_path, publishing_large_headers)
    assert ours == theirs
    assert len(ours) == 21


async def expiring_keys(client: Client) -> list[Any]:
    """Return the markers that records of a bucket leave when their time is over."""
    wire = {"name": "S", "subjects": ["s.>"], "allow_msg_ttl": True}
    await api(client, "STREAM.CREATE.S", {**wire, "subject_delete_marker_ttl": NANO})
    heard_of = await client.subscribe("to")
    deliver = {"name": "C", "deliver_subject": "to", "ack_policy": "none"}
    await api(client, "CONSUMER.CREATE.S.C", {"stream_name": "S", "config": deliver})
    for operation in ("PURGE", "DEL", "PUT", "purge"):
        headers = {"KV-Operation": operation, "Nats-TTL": "1s"}
        await publish(client, f"s.{operation}", b"", headers)
    found = [await heard_of.next_msg(timeout=10) for _ in range(7)]
    return sorted((m.subject, sorted((m.headers or {}).items())) for m in found)


async def test_a_purged_key_that_expires_leaves_no_marker_as_at_the_reference(tmp_path: Path):
    ours, theirs = await both(tmp_path, expiring_keys)
    assert ours == theirs


async def losing_origins(client: Client) -> list[Any]:
    """Return the subjects of streams whose updates name neither origin nor subjects."""
    seen = []
    await api(client, "STREAM.CREATE.O", {"name": "O", "subjects": ["o"]})
    for name, origin in (("S", {"sources": [{"name": "O"}]}), ("M", {"mirror": {"name": "O"}})):
        await api(client, f"STREAM.CREATE.{name}", {"name": name, **origin})
        changed = await api(client, f"STREAM.UPDATE.{name}", {"name": name})
        seen.append(changed["config"].get("subjects"))
        seen.append(await publish(client, name))
    return seen


async def test_a_stream_that_loses_its_origins_captures_its_own_name(tmp_path: Path):
    ours, theirs = await both(tmp_path, losing_origins)
    assert ours == theirs
    assert ours[::2] == [["S"], ["M"]]


async def evicting(client: Client) -> list[Any]:
    """Return the state of a stream at once after limits per subject took its first record."""
    await api(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"],
                                          "max_msgs_per_subject": 1})  # fmt: skip
    for name in "abcca":
        await publish(client, f"s.{name}")
    state = (await api(client, "STREAM.INFO.S", {"deleted_details": True}))["state"]
    kept = ("messages", "first_seq", "last_seq", "num_deleted", "deleted")
    return [state.get(key) for key in kept]


async def test_what_a_limit_per_subject_took_from_the_beginning_is_no_hole(tmp_path: Path):
    ours, theirs = await both(tmp_path, evicting)
    assert ours == theirs == [3, 2, 5, 1, [3]]
