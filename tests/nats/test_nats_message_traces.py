"""Message traces beside the real server: who saw a message, and who would have."""

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from configured_pair import Place, both
from nats.aio.client import Client

CONFIG = """
jetstream { store_dir: "DIRECTORY" }
mappings { mapped.in: mapped.out }
accounts {
  A {
    jetstream: enabled
    users: [ {user: a, password: secret},
             {user: limited, password: secret,
              permissions: {publish: {deny: [secret.>, denied]}}} ]
    mappings { mapped.in: mapped.out }
    msg_trace: { dest: traces.parents }
    exports: [ {stream: news.>}, {stream: seen.>}, {service: ask.one},
               {service: ask.seen, allow_trace: true} ]
  }
  B {
    users: [ {user: b, password: secret} ]
    imports: [ {stream: {account: A, subject: news.>}, prefix: from_a},
               {stream: {account: A, subject: seen.>}, to: known.>, allow_trace: true},
               {service: {account: A, subject: ask.one}},
               {service: {account: A, subject: ask.seen}, to: my.ask} ]
  }
}
no_auth_user: a
"""
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"


def plain(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event without times, names of servers and numbers of connections."""
    assert event["server"]["name"]
    assert event["server"]["id"].startswith("N")
    events = [{k: v for k, v in each.items() if k not in ("ts", "cid")} for each in event["events"]]
    for each in events:  # ours names an importer's subscription as its client wrote it
        if each.get("sub") == "known.>":
            each["sub"] = "seen.>"
    first, rest = events[0], sorted(events[1:], key=json.dumps)
    return {"request": event["request"], "events": [first, *rest]}


class Traced:
    """Publishes with trace headers and waits for the event."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def event(
        self, subject: str, payload: bytes = b"x", reply: str = "", **headers: str
    ) -> Any:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        dest = named.setdefault("Nats-Trace-Dest", "traces.here")
        waiting = await self.client.subscribe(dest)
        await self.client.publish(subject, payload, reply=reply, headers=named)
        message = await waiting.next_msg(timeout=5)
        await waiting.unsubscribe()
        data = message.data
        if (message.headers or {}).get("Content-Encoding") == "gzip":
            data = gzip.decompress(data)
        return plain(json.loads(data))


Scenario = Callable[[Place], Awaitable[list[Any]]]


async def delivered(place: Place) -> list[Any]:
    """Subscribers, queues, echo, maxima, mappings."""
    client, other = await place.client("a"), await place.client("a")
    heard: list[tuple[str, bytes]] = []

    async def hear(message: Any) -> None:
        heard.append((message.subject, message.data))

    for pattern, queue in (("x.*", ""), ("x.y", "q"), ("x.>", ""), ("mapped.*", "")):
        await other.subscribe(pattern, queue=queue, cb=hear)
    few = await other.subscribe("x.y")
    await few.unsubscribe(limit=1)
    await other.flush()
    traced, seen = Traced(client), list[Any]()
    seen.append(await traced.event("x.y"))
    seen.append(await traced.event("x.y", Nats_Trace_Only="true"))
    seen.append(await traced.event("x.y", Nats_Trace_Only="no", Accept_Encoding="gzip"))
    seen.append(await traced.event("mapped.in"))
    seen.append(await traced.event("nobody"))
    await client.flush()
    await other.flush()
    seen.append(sorted(heard))
    return seen


async def stored(place: Place) -> list[Any]:
    """Streams: stored, refused, only asked about."""
    client = await place.client("a")
    stream = client.jetstream()
    await stream.add_stream(name="S", subjects=["s.>"], max_msg_size=200)
    traced, seen = Traced(client), list[Any]()
    seen.append(await traced.event("s.one", Nats_Msg_Id="i"))
    seen.append(await traced.event("s.one", Nats_Msg_Id="i", Nats_Trace_Only="1"))
    seen.append(await traced.event("s.one", Nats_Trace_Only="on"))
    seen.append(await traced.event("s.one", Nats_Expected_Last_Sequence="9"))
    seen.append(await traced.event("s.one", Nats_Expected_Stream="T"))
    seen.append(await traced.event("s.one", b"x" * 300))
    info = await stream.stream_info("S")
    seen.append((info.state.messages, info.state.last_seq))
    kept = await stream.get_msg("S", 1)
    seen.append(sorted((kept.headers or {}).items()))
    return seen


async def shared(place: Place) -> list[Any]:
    """Exports and imports, followed or not."""
    ours, theirs = await place.client("a"), await place.client("b")
    heard: list[str] = []

    async def hear(message: Any) -> None:
        heard.append(message.subject)

    async def answer(message: Any) -> None:
        heard.append(message.subject)
        if message.reply:
            await message.respond(b"yes")

    await theirs.subscribe("from_a.>", cb=hear)
    await theirs.subscribe("known.>", cb=hear)
    await ours.subscribe("ask.*", cb=answer)
    await theirs.flush()
    await ours.flush()
    traced, asking, seen = Traced(ours), Traced(theirs), list[Any]()
    for only in ("false", "true"):
        seen.append(await traced.event("news.a", Nats_Trace_Only=only))
        seen.append(await traced.event("seen.a", Nats_Trace_Only=only))
        seen.append(await asking.event("ask.one", Nats_Trace_Only=only))
        seen.append(await asking.event("my.ask", Nats_Trace_Only=only))
    inbox = theirs.new_inbox()
    replies = await theirs.subscribe(inbox)
    seen.append(await asking.event("my.ask", reply=inbox))
    seen.append((await replies.next_msg(timeout=5)).data)
    await ours.flush()
    await theirs.flush()
    seen.append(sorted(heard))
    return seen


async def refused(place: Place) -> list[Any]:
    """What the client may not publish, it may not have traced to either."""
    admin = await place.client("a")
    heard: list[str] = []

    async def hear(message: Any) -> None:
        heard.append(message.subject)

    for pattern in ("secret.>", "x", "denied"):
        await admin.subscribe(pattern, cb=hear)
    await admin.flush()
    client = await place.client("limited")
    errors = list[str]()

    async def complain(error: Exception) -> None:
        errors.append(str(error).lower())

    client._error_cb = complain
    traced, seen = Traced(client), list[Any]()
    seen.append(await traced.event("denied"))
    for headers in (
        {"Nats-Trace-Dest": "secret.a"},
        {"Nats-Trace-Dest": "secret.a", "Nats-Trace-Only": "true"},
        {"Nats-Trace-Dest": "_GR_.abc"},
        {"Nats-Trace-Dest": "not valid"},
        {"Nats-Trace-Dest": "not valid", "Nats-Trace-Only": "true"},
        {"Nats-Trace-Dest": "trace disabled", "Nats-Trace-Only": "true"},
        {"Nats-Trace-Dest": "traces.a", "Nats-Trace-Origin-Account": "B"},
    ):
        await client.publish("x", b"", headers=headers)
    await client.flush()
    await admin.flush()
    await asyncio.sleep(0)
    seen += [sorted(errors), sorted(heard)]
    return seen


async def parents(place: Place) -> list[Any]:
    """A traceparent that is sampled is traced to where the account says."""
    client, other = await place.client("a"), await place.client("b")
    waiting = await client.subscribe("traces.parents")
    seen = list[Any]()
    for name, flags in (("traceparent", "1"), ("TraceParent", "1"), ("traceparent", "0")):
        await client.publish("x", b"", headers={name: PARENT + flags})
    await other.publish("x", b"", headers={"traceparent": PARENT + "1"})
    for _ in range(2):
        seen.append(plain(json.loads((await waiting.next_msg(timeout=5)).data)))
    await client.flush()
    seen.append(waiting.pending_msgs)
    return seen


@pytest.mark.parametrize("scenario", [delivered, stored, shared, refused, parents])
async def test_traces_are_those_of_the_reference(tmp_path: Path, scenario: Scenario) -> None:
    assert await both(tmp_path, CONFIG, scenario)
