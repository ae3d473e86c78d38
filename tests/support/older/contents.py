"""What a server shows of its directory at the NATS and the HTTP door, as plain JSON values.

Only what every later version must show as well: what a client sees, not where it is stored.
"""

import asyncio
import base64
import contextlib
import hashlib
import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nats.aio.client import Client

import nats
from support.older.place import LIMIT, Doors

STATE = ("messages", "first_seq", "last_seq", "num_subjects", "num_deleted", "deleted", "subjects")
CONSUMER = (
    *("delivered", "ack_floor", "num_ack_pending", "num_redelivered", "num_pending", "paused"),
)
SHORT = 300
VERSION = "_nats."  # metadata that names the server's version


async def login(doors: Doors, user: str) -> Client:
    return await nats.connect(doors.nats, user=user, password=user)


async def api(client: Client, call: str, body: object = None) -> Any:
    """Ask the JetStream API; returns errors too."""
    data = b"" if body is None else json.dumps(body).encode()
    subject = call if call.startswith("$") else f"$JS.API.{call}"
    return json.loads((await client.request(subject, data, timeout=LIMIT)).data)


# -- what is there ----------------------------------------------------------------------------


async def contents(doors: Doors, users: Sequence[str], *, brief: bool = False) -> dict[str, Any]:
    """Return everything that is stored, by user; ``brief`` leaves the records out."""
    found: dict[str, Any] = {}
    for user in users:
        client = await login(doors, user)
        names = (await api(client, "STREAM.NAMES"))["streams"]
        stream = _figures if brief else _stream
        found[user] = {name: await stream(client, name) for name in sorted(names)}
        await client.close()
    return found


async def _figures(client: Client, name: str) -> dict[str, Any]:
    info = await api(client, f"STREAM.INFO.{name}", {"deleted_details": True})
    plan = await api(client, f"$MILLSTREAM.API.PLAN.{name}", {})
    state = {key: info["state"].get(key, 0) for key in STATE[:-1]}
    consumers = await _consumers(client, name)
    for consumer in consumers.values():
        del consumer["config"], consumer["created"]
    return {"state": state, "gaps": plan["gaps"], "consumers": consumers}


async def _stream(client: Client, name: str) -> dict[str, Any]:
    asked = {"deleted_details": True, "subjects_filter": ">"}
    info = await api(client, f"STREAM.INFO.{name}", asked)
    plan = await api(client, f"$MILLSTREAM.API.PLAN.{name}", {})
    return {
        "config": _config(info["config"]),
        "created": info["created"],
        "state": {key: info["state"].get(key, 0) for key in STATE},
        "gaps": plan["gaps"],
        "identity": plan["identity"] if info["config"]["storage"] == "file" else "",
        "records": await _records(client, name, info["state"]["last_seq"]),
        "consumers": await _consumers(client, name),
    }


def _config(config: dict[str, Any]) -> dict[str, Any]:
    kept = {k: v for k, v in config.get("metadata", {}).items() if not k.startswith(VERSION)}
    return {**config, "metadata": kept}


async def _records(client: Client, stream: str, last: int) -> list[list[Any]]:
    """Return each record as sequence, subject, time, headers and payload."""
    found, seq = [], 1
    while seq <= last:
        asked = {"seq": seq, "next_by_subj": ">"}
        answer = await api(client, f"STREAM.MSG.GET.{stream}", asked)
        if "error" in answer:  # nothing more, or a damaged record that nobody has met before
            seq += 1
            continue
        message = answer["message"]
        parts = [_text(message.get(part, "")) for part in ("hdrs", "data")]
        found.append([message["seq"], message["subject"], message["time"], *parts])
        seq = message["seq"] + 1
    return found


def _text(encoded: str) -> str:
    """Return short text as it is, of anything else the digest."""
    data = base64.b64decode(encoded)
    if len(data) <= SHORT:
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode()
    return f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}"


async def _consumers(client: Client, stream: str) -> dict[str, Any]:
    answer = await api(client, f"CONSUMER.LIST.{stream}")
    return {
        info["name"]: {
            "config": _config(info["config"]),
            "created": info["created"],
            **{key: _place(info.get(key, False)) for key in CONSUMER},
        }
        for info in answer["consumers"]
    }


def _place(value: Any) -> Any:
    """Return a position without the time when it was last moved."""
    if not isinstance(value, dict):
        return value
    return [value["consumer_seq"], value["stream_seq"]]


def topics(doors: Doors) -> dict[str, Any]:
    """Return what only the HTTP door shows: tags, meta and nodes, queues, routers."""
    names = [topic["topic"] for topic in doors.get("/v0/topics?page_size=1000")["topics"]]
    found = {}
    for name in sorted(name for name in names if name.islower()):
        shown = doors.get(f"/v0/topics/{name}")
        asked = {"from_seq": 0, "limit": 1000, "include_tags": True}
        page = doors.post(f"/v0/topics/{name}/diff", asked)
        found[name] = {key: shown.get(key) for key in ("type", "config", "queue", "next_seq")}
        found[name] |= {key: page[key] for key in ("records", "tombstone", "next_from_seq")}
    routers = doors.get("/v0/routers")["routers"]
    return {"topics": found, "routers": sorted(routers, key=lambda each: each["router"])}


async def buckets(doors: Doors) -> dict[str, Any]:
    """Return what clients of key-value buckets and object stores see."""
    client = await login(doors, "main")
    stream = client.jetstream()
    bucket = await stream.key_value("config")
    store = await stream.object_store("files")
    keys = sorted(await bucket.keys())
    history = {key: await bucket.history(key) for key in keys}
    objects = sorted(await store.list(ignore_deletes=True), key=lambda each: str(each.name))
    found = {
        "keys": {
            key: [[e.revision, (e.value or b"").decode(), e.operation] for e in entries]
            for key, entries in history.items()
        },
        "objects": [
            [info.name, info.size, info.digest, (await store.get(info.name)).data[:20].decode()]
            for info in objects
        ],
    }
    await client.close()
    return found


def twins(cold: Path) -> dict[str, Any]:
    """Return the rows of the Parquet files at a cold place, by stream; needs pyarrow."""
    pq = importlib.import_module("pyarrow.parquet")
    found: dict[str, Any] = {}
    for path in sorted(cold.glob("*/manifest.json")):
        manifest = json.loads(path.read_text())["manifest"]
        rows: list[list[Any]] = []
        for file in manifest["files"]:
            table = pq.read_table(path.parent / file["parquet"]["name"])
            rows += [
                [row["seq"], row["subject"], row["payload"].decode()] for row in table.to_pylist()
            ]
        found[manifest["stream"]] = {"deleted": manifest["deleted"], "rows": rows}
    return found


# -- how it goes on ---------------------------------------------------------------------------


async def goes_on(doors: Doors, held: dict[str, Any]) -> dict[str, Any]:
    """Use what is there as clients would that never left; returns the answers."""
    client = await login(doors, "main")
    answers = {
        "leases": _leases(doors, held["leases"]),
        "deposits": [
            doors.call("POST", "/v0/topics/DEPOSITS/commit", each) for each in held["commits"]
        ],
        "written": doors.post("/v0/topics/events", held["write"])["seqs"],
        "keys": [doors.call("GET", "/v0/topics", token=each) for each in held["tokens"]],
        "deliveries": await _deliveries(client, held["pulls"]),
        "published": await _published(client, held["publishes"]),
        "copied": [await _copied(client, *each) for each in held["copies"]],
    }
    await client.close()
    answers["keys"] = [_pick(each, "status", "code") for each in answers["keys"]]
    return answers


def _pick(answer: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: answer[name] for name in names if name in answer}


def _leases(doors: Doors, held: list[dict[str, Any]]) -> dict[str, Any]:
    """Extend what is held, claim all that nobody has, then finish what was held."""
    longer = [{**each, "lease_ms": 3_600_000} for each in held]
    extended = [doors.post("/v0/topics/jobs/extend", each) for each in longer]
    claimed = doors.post("/v0/topics/jobs/claim", {"node": "late", "max": 100})["claimed"]
    acked = [doors.post("/v0/topics/jobs/ack", each) for each in held]
    return {
        "extended": [_pick(each, "extended", "skipped") for each in extended],
        "claimed": sorted([each["$seq"], each["deliveries"], each["data"]] for each in claimed),
        "acked": [_pick(each, "acked", "skipped", "ready", "in_flight") for each in acked],
        "letters": doors.get("/v0/topics/jobs.dead")["count"],
    }


async def _deliveries(client: Client, pulls: list[list[str]]) -> dict[str, Any]:
    """Fetch all that each consumer still has to give: stream sequence and count of deliveries."""
    found: dict[str, Any] = {}
    for stream, consumer in pulls:
        inbox = client.new_inbox()
        answers = await client.subscribe(inbox)
        asked = json.dumps({"batch": 1000, "no_wait": True}).encode()
        await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", asked, reply=inbox)
        rows = []
        while (message := await answers.next_msg(LIMIT)).reply:
            deliveries, seq = message.reply.split(".")[-5:-3]
            rows.append([int(seq), int(deliveries)])
        await answers.unsubscribe()
        found[f"{stream}.{consumer}"] = sorted(rows)
    return found


async def _published(client: Client, publishes: list[list[Any]]) -> list[Any]:
    found = []
    for subject, payload, headers in publishes:
        answer = await client.request(subject, payload.encode(), LIMIT, headers=headers)
        found.append(_pick(json.loads(answer.data), "stream", "seq", "duplicate", "error", "val"))
    return found


async def _copied(client: Client, stream: str, subject: str, payload: str) -> list[Any]:
    """Wait until a stream holds this payload as the last of the subject."""
    deadline = asyncio.get_running_loop().time() + LIMIT
    while asyncio.get_running_loop().time() < deadline:
        answer = await api(client, f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
        message = answer.get("message", {})
        if _text(message.get("data", "")) == payload:
            return [stream, message["seq"], _text(message.get("hdrs", ""))]
        await asyncio.sleep(0.02)
    raise AssertionError(f"{stream} got no copy of {payload}")
