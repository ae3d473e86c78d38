"""Fills a data directory with one of everything, over the NATS and the HTTP door.

``begin`` and ``go_on`` are two lives of one server: most things begin in the first and go on in the
second, so that files, snapshots and the end of the write-ahead log all hold some of each.
"""

import struct
from typing import Any

from nats.aio.client import Client
from nats.js.api import KeyValueConfig
from xxhash import xxh3_64_hexdigest

from support.older.contents import api, login
from support.older.place import LIMIT, Doors

DAY = 86_400_000  # ms: the longest lease
DAY_NS = DAY * 1_000_000
FAR = "2100-01-01T00:00:00Z"
ENTRY = struct.Struct("<IIIIHHHHII")

STREAMS: list[dict[str, Any]] = [
    {"name": "ORDERS", "subjects": ["orders.>"], "duplicate_window": 2 * DAY_NS},
    {"name": "HISTORY", "subjects": ["history.>"], "duplicate_window": 100_000_000},
    {"name": "DAMAGED", "subjects": ["damaged"], "duplicate_window": 2 * DAY_NS},
    {"name": "DISK", "subjects": ["disk.>"], "metadata": {"millstream.durability": "disk"}},
    {"name": "WRITTEN", "subjects": ["written"], "metadata": {"millstream.durability": "memory"}},
    {"name": "EPHEMERAL", "subjects": ["ephemeral"], "storage": "memory"},
    {"name": "COMPRESSED", "subjects": ["compressed"], "compression": "s2"},
    {"name": "NEWEST", "subjects": ["newest.>"], "max_msgs_per_subject": 2},
    {"name": "CAPPED", "subjects": ["capped"], "max_msgs": 25},
    {"name": "PURGED", "subjects": ["purged.>"]},
    {"name": "WORK", "subjects": ["work.>"], "retention": "workqueue"},
    {"name": "INTEREST", "subjects": ["interest"], "retention": "interest"},
    {"name": "STARTED", "subjects": ["started"], "first_seq": 1000},
    {"name": "AGAIN", "subjects": ["again"]},
    {"name": "COUNTER", "subjects": ["counter.>"], "allow_msg_counter": True},
    {"name": "LIFETIMES", "subjects": ["lifetimes"], "allow_msg_ttl": True},
    {"name": "DEPOSITS", "subjects": ["deposits.>"]},
    {"name": "TIMETABLE", "subjects": ["timetable.>", "timed.>"], "allow_msg_schedules": True},
    {"name": "BATCHES", "subjects": ["batches"], "allow_atomic": True},
    {"name": "TURNED", "subjects": ["in.*"], "subject_transform": {"src": "in.*", "dest": "t.$1"}},
    {"name": "MIRROR", "mirror": {"name": "ORDERS"}},
    {
        "name": "GATHERED",
        "sources": [
            {"name": "ORDERS", "filter_subject": "orders.eu"},
            {"name": "HISTORY", "filter_subject": "history.1"},
        ],
    },
]  # fmt: skip
CONSUMERS: dict[str, list[dict[str, Any]]] = {
    "ORDERS": [
        {"durable_name": "some", "ack_policy": "explicit", "ack_wait": DAY_NS},
        {"durable_name": "naked", "ack_policy": "explicit", "ack_wait": DAY_NS},
        {"durable_name": "all", "ack_policy": "all", "ack_wait": DAY_NS},
        {"durable_name": "once", "ack_policy": "explicit", "ack_wait": DAY_NS, "max_deliver": 1},
        {"durable_name": "paused", "ack_policy": "explicit", "pause_until": FAR},
        {"durable_name": "eu", "ack_policy": "explicit", "filter_subject": "orders.eu"},
        {"durable_name": "pushed", "ack_policy": "explicit", "deliver_subject": "nobody.listens"},
    ],
    "WORK": [{"durable_name": "worker", "ack_policy": "explicit", "ack_wait": DAY_NS}],
    "INTEREST": [
        {"durable_name": "first", "ack_policy": "explicit", "ack_wait": DAY_NS},
        {"durable_name": "second", "ack_policy": "explicit", "ack_wait": DAY_NS},
    ],
    "LIFETIMES": [{"durable_name": "none", "ack_policy": "none"}],
}


async def begin(doors: Doors) -> None:
    """Make the streams, consumers, topics, buckets and routers, and write the first part."""
    client = await login(doors, "main")
    for config in STREAMS:
        await _asked(client, f"STREAM.CREATE.{config['name']}", config)
    for stream, consumers in CONSUMERS.items():
        for config in consumers:
            body = {"stream_name": stream, "config": config}
            await _asked(client, f"CONSUMER.DURABLE.CREATE.{stream}.{config['durable_name']}", body)
    _make_topics(doors)
    await _write(client, 0, 50)
    await _write_features(client)
    await _buckets(client)
    _write_topics(doors, 0, 30)
    await _deliver(client)
    await _remove(client)
    await client.close()
    await _fill_lab(doors)


async def go_on(doors: Doors) -> dict[str, Any]:
    """Write the second part; returns what clients still hold."""
    client = await login(doors, "main")
    await _write(client, 50, 70)
    _write_topics(doors, 30, 40)
    for subject in ("counter.a", "counter.b"):
        await _publish(client, subject, "", {"Nats-Incr": "+2"})
    await _fetch(client, "ORDERS", "some", 3)
    _hold(doors, 9)
    bucket = await client.jetstream().key_value("config")
    await bucket.put("colour", b"green")
    await _asked(client, "STREAM.MSG.DELETE.ORDERS", {"seq": 61})
    held = {"leases": _work(doors), "commits": _deposit(doors)}
    await client.close()
    return held


async def _asked(client: Client, call: str, body: object) -> Any:
    answer = await api(client, call, body)
    assert "error" not in answer, f"{call}: {answer['error']}"
    return answer


async def _publish(
    client: Client, subject: str, payload: str, headers: dict[str, str] | None = None
) -> None:
    answer = await client.request(subject, payload.encode(), LIMIT, headers=headers)
    assert b'"error"' not in answer.data, (subject, answer.data)


async def _write(client: Client, start: int, end: int) -> None:
    for n in range(start, end):
        place = ("eu", "us", "asia")[n % 3]
        ident = {"Nats-Msg-Id": f"order-{n}", "Place": place}
        await _publish(client, f"orders.{place}", f'{{"order":{n}}}', ident)
        await _publish(client, f"history.{n % 4}", f"history {n}")
        for subject in ("damaged", "compressed", "capped", "written", "ephemeral", "started"):
            await _publish(client, subject, f"{subject} {n}")
        for subject in ("disk", "newest", "purged"):
            await _publish(client, f"{subject}.{n % 5}", f"{subject} {n}")
    for n in range(start, end, 5):
        await _publish(client, f"work.{n % 2}", f"work {n}")
        await _publish(client, "interest", f"interest {n}")
        await _publish(client, f"in.{n % 3}", f"turned {n}")


async def _write_features(client: Client) -> None:
    for n in range(5):
        await _publish(client, "again", f"before {n}")
    await _asked(client, "STREAM.DELETE.AGAIN", None)
    await _asked(client, "STREAM.CREATE.AGAIN", {"name": "AGAIN", "subjects": ["again"]})
    await _publish(client, "again", "after")
    for n in range(4):
        await _publish(client, f"counter.{'ab'[n % 2]}", "", {"Nats-Incr": f"+{n}"})
    await _publish(client, "lifetimes", "short", {"Nats-TTL": "20h"})
    await _publish(client, "lifetimes", "never", {"Nats-TTL": "never"})
    at = {"Nats-Schedule": f"@at {FAR}", "Nats-Schedule-Target": "timed.once"}
    await _publish(client, "timetable.once", "at the end of the century", at)
    for n in range(1, 4):
        batch = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": str(n)}
        if n == 3:
            batch["Nats-Batch-Commit"] = "1"
            await _publish(client, "batches", f"batch {n}", batch)
        else:
            await client.publish("batches", f"batch {n}".encode(), headers=batch)


async def _buckets(client: Client) -> None:
    stream = client.jetstream()
    bucket = await stream.create_key_value(KeyValueConfig(bucket="config", history=3))
    for value in (b"red", b"blue", b"white", b"black"):
        await bucket.put("colour", value)
    for key in ("kept", "deleted", "purged"):
        await bucket.put(key, key.encode())
    await bucket.delete("deleted")
    await bucket.purge("purged")
    store = await stream.create_object_store("files")
    await store.put("small", b"a small object")
    await store.put("large", b"0123456789" * 20_000)
    await store.put("gone", b"gone")
    await store.delete("gone")


def _make_topics(doors: Doors) -> None:
    day = {"idempotency_window_ms": 2 * DAY}
    doors.put("/v0/topics/events", day)
    doors.put("/v0/topics/written", {**day, "durability": "memory"})
    doors.put("/v0/topics/synced", {**day, "durability": "fsync", "cap_records": 12})
    queue = {"type": "queue", "lease_ms": DAY, "leases_durable": True, "max_deliveries": 2}
    doors.put("/v0/topics/jobs", {**queue, "dead_letter": "jobs.dead"})
    router = {"source": "events", "dest": "events.eu", "filter": "eu:*"}
    doors.put("/v0/routers/eu", {**router, "guarantee": "exactly_once"})
    doors.put("/v0/routers/all", {"source": "events", "dest": "events.copy", "preserve_tag": False})


def event(n: int) -> dict[str, Any]:
    """A write of two records to ``events`` that may be sent again."""
    records = [
        {"data": {"event": n}, "tag": f"{('eu', 'us')[n % 2]}:{n % 3}", "meta": {"by": "maker"}},
        {"data": [n, None, "ü"], "node": f"n{n % 2}"},
    ]
    return {"records": records, "idempotency_key": f"event-{n}"}


def _write_topics(doors: Doors, start: int, end: int) -> None:
    for n in range(start, end):
        answer = doors.post("/v0/topics/events", event(n))
        assert answer["count"] == 2, answer
        for topic in ("written", "synced"):
            doors.post(f"/v0/topics/{topic}", {"records": [{"data": n, "tag": "t"}]})
    doors.post("/v0/topics/events/delete", {"before_seq": start + 3})
    doors.post("/v0/topics/events/delete", {"match": "us:1"})


async def _fetch(client: Client, stream: str, consumer: str, count: int) -> list[Any]:
    pulled = await client.jetstream().pull_subscribe_bind(consumer, stream)
    messages: list[Any] = await pulled.fetch(count, timeout=LIMIT)
    await pulled.unsubscribe()
    return messages


async def _deliver(client: Client) -> None:
    """Leave each consumer in a state of its own."""
    for at, message in enumerate(await _fetch(client, "ORDERS", "some", 10)):
        if at in (0, 1, 4, 6):
            await message.ack_sync(LIMIT)
    for at, message in enumerate(await _fetch(client, "ORDERS", "naked", 6)):
        if at < 2:
            await message.nak()
        elif at == 2:
            await message.nak(delay=80_000)
        elif at == 3:
            await message.term()
    await _fetch(client, "ORDERS", "naked", 2)
    await (await _fetch(client, "ORDERS", "all", 8))[5].ack_sync(LIMIT)
    for message in await _fetch(client, "ORDERS", "once", 3):
        await message.nak()
    await (await _fetch(client, "WORK", "worker", 4))[1].ack_sync(LIMIT)
    for consumer, count in (("first", 6), ("second", 3)):
        for message in await _fetch(client, "INTEREST", consumer, count):
            await message.ack_sync(LIMIT)
    await _fetch(client, "LIFETIMES", "none", 1)


async def _remove(client: Client) -> None:
    for seq in (7, 8, 21, 22, 23):
        await _asked(client, "STREAM.MSG.DELETE.ORDERS", {"seq": seq, "no_erase": seq != 8})
    await _asked(client, "STREAM.PURGE.PURGED", {"filter": "purged.1"})
    await _asked(client, "STREAM.PURGE.PURGED", {"seq": 20})
    await _asked(client, "STREAM.PURGE.STARTED", {"keep": 9})
    await _asked(client, "STREAM.MSG.DELETE.HISTORY", {"seq": 5})


async def _fill_lab(doors: Doors) -> None:
    """Another account, with a stream of a name that the first one has too."""
    client = await login(doors, "lab")
    await _asked(client, "STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
    for n in range(5):
        await _publish(client, f"orders.{n}", f"lab {n}")
    await client.close()


def _hold(doors: Doors, seq: int) -> None:
    doors.post("/v0/topics/ORDERS/hold", {"holder": "spark", "seq": seq, "seconds": 3600})


def _work(doors: Doors) -> list[dict[str, Any]]:
    """Leave jobs that are ready, leased, delayed, done and given up; returns the leases."""
    jobs = "/v0/topics/jobs"
    doors.post(jobs, {"records": [{"data": {"job": n}, "tag": "t"} for n in range(12)]})
    claim = {"node": "w1", "max": 8}
    taken = doors.post(f"{jobs}/claim", claim)["claimed"]
    first = [each["$seq"] for each in taken]
    doors.post(f"{jobs}/ack", {"node": "w1", "seqs": first[:1]})
    doors.post(f"{jobs}/nack", {"node": "w1", "seqs": first[1:2], "delay_ms": DAY})
    doors.post(f"{jobs}/nack", {"node": "w1", "seqs": first[2:4]})
    again = doors.post(f"{jobs}/claim", {"node": "w2", "max": 2})["claimed"]
    doors.post(f"{jobs}/nack", {"node": "w2", "seqs": [again[0]["$seq"]]})
    leased = doors.post(f"{jobs}/claim", {"node": "w3", "max": 2})["claimed"]
    return [
        {"node": node, "seqs": [e["$seq"] for e in own], "lease_ids": [e["lease_id"] for e in own]}
        for node, own in (("w1", taken[4:]), ("w2", again[1:]), ("w3", leased))
    ]


def _deposit(doors: Doors) -> list[dict[str, Any]]:
    """Commit two batches of one sink; returns commits that are repeated or refused from now on."""
    commits = []
    for batch in (0, 1):
        body = b"".join(_entry(f"deposits.{n}", f"deposit {batch} {n}") for n in range(3))
        doors.post(f"/v0/topics/DEPOSITS/stage?sink=spark&batch={batch}&id=part-{batch}", body)
        file = {"id": f"part-{batch}", "bytes": len(body), "check": xxh3_64_hexdigest(body)}
        asked = {"sink": "spark", "batch": batch, "files": [file], "query": "q1"}
        assert doors.post("/v0/topics/DEPOSITS/commit", asked)["records"] == 3
        commits.append(asked)
    return [*commits, {**commits[0], "query": "q2"}]


def _entry(subject: str, payload: str) -> bytes:
    size = ENTRY.size + len(subject) + len(payload)
    head = ENTRY.pack(size, 0, len(payload), 0, len(subject), 0, 0, 0, 0, 0)
    return head + subject.encode() + payload.encode()


async def fill_sealed(doors: Doors, start: int, end: int) -> None:
    """Write into the encrypted directory; the first call makes its streams."""
    client = await login(doors, "main")
    if not start:
        for name, compression in (("SEALED", "none"), ("PRESSED", "s2")):
            config = {"name": name, "subjects": [f"{name.lower()}.>"], "compression": compression}
            await _asked(client, f"STREAM.CREATE.{name}", {**config, "duplicate_window": DAY_NS})
            consumer = {"durable_name": "reader", "ack_policy": "explicit", "ack_wait": DAY_NS}
            body = {"stream_name": name, "config": consumer}
            await _asked(client, f"CONSUMER.DURABLE.CREATE.{name}.reader", body)
    for n in range(start, end):
        for name in ("sealed", "pressed"):
            await _publish(client, f"{name}.{n % 3}", f"{name} {n} " + "x" * (n % 7))
    await _fetch(client, "SEALED", "reader", 4)
    await client.close()
    doors.post("/v0/topics/events", {"records": [{"data": end, "tag": "t", "meta": {"n": 1}}]})
