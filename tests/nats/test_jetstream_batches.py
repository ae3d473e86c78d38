"""Batches of publishers, atomic and fast: the same steps here and at the real nats-server."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from jetstream_broker import Broker
from nats.aio.client import Client

import nats
from support.clients import flushed
from support.nats_server import nats_server

WAIT, QUIET = 20.0, 0.06
START, APPEND, COMMIT, EOB, PING = range(5)
FAST = {"name": "F", "subjects": ["f.*"], "allow_batched": True}


async def both(tmp_path: Path, scenario: Callable[[Client], Awaitable[Any]]) -> None:
    """Run the scenario here and at the reference; both must see the same."""
    broker = Broker(str(tmp_path / "ours"))
    seen = []
    with nats_server("-js", "-sd", str(tmp_path / "theirs")) as reference:
        for url in (broker.start(), reference.url):
            client = await nats.connect(url, allow_reconnect=False)
            try:
                seen.append(await scenario(client))
            finally:
                await client.close()
                if url != reference.url:
                    await broker.stop()
    assert [pair for pair in zip_longest(*seen) if pair[0] != pair[1]] == []


async def api(client: Client, subject: str, body: Any = b"") -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = await client.request(f"$JS.API.{subject}", data, timeout=20)
    answer = json.loads(re.sub(r'"20\d\d-[^"]*Z"', '"TIME"', reply.data.decode()))
    if "cluster" in answer:
        answer["cluster"] = sorted(answer["cluster"])
    return answer


class Publisher:
    """Publishes messages of fast batches and notes every answer with its reply subject."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.inbox = client.new_inbox()
        self.heard: list[Any] = []
        self._end = asyncio.Event()

    async def listen(self) -> "Publisher":
        await self.client.subscribe(f"{self.inbox}.>", cb=self._note)
        await api(self.client, "STREAM.CREATE.END", {"name": "END", "subjects": ["end"]})
        return self

    async def _note(self, msg: Any) -> None:
        if msg.subject == f"{self.inbox}.end":
            self._end.set()
        else:
            self.heard.append((msg.subject[len(self.inbox) :], json.loads(msg.data)))

    async def send(
        self, batch: str, seq: Any, op: Any, flow: Any = 10, gap: str = "fail", *,
        subject: str = "f.a", data: bytes = b"x", headers: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        reply = f"{self.inbox}.{batch}.{flow}.{gap}.{seq}.{op}.$FI"
        await self.client.publish(subject, data, reply=reply, headers=headers)

    async def quiet(self) -> list[Any]:
        """Return what came, once nothing more comes.

        Here, what waits for the disk is answered behind what waited for it before, whatever the
        stream; the reference waits for no disk.
        """
        await flushed(self.client)
        self._end.clear()
        await self.client.publish("end", b"", reply=f"{self.inbox}.end")
        await asyncio.wait_for(self._end.wait(), WAIT)
        await asyncio.sleep(QUIET)
        await flushed(self.client)
        heard, self.heard = self.heard, []
        return heard


async def state(client: Client, stream: str = "F") -> Any:
    found = (await api(client, f"STREAM.INFO.{stream}"))["state"]
    return found["messages"], found["last_seq"]


Step = tuple[Any, ...]
SCRIPTS: dict[str, list[tuple[Step, dict[str, Any]]]] = {
    "a batch of three": [((1, START), {}), ((2, APPEND), {}), ((3, COMMIT), {})],
    "ended by a marker": [((1, START), {}), ((2, APPEND), {}), ((3, EOB), {})],
    "one message": [((1, COMMIT), {})],
    "answers every two": [((n, START if n == 1 else APPEND, 2), {}) for n in range(1, 8)]
    + [((8, COMMIT, 2), {})],
    "no flow given": [((1, START, 0), {}), ((2, APPEND, "x"), {}), ((3, EOB, 70000), {})],
    "a gap fails": [((1, START), {}), ((3, APPEND), {}), ((4, APPEND), {})],
    "a gap is fine": [
        ((1, START, 10, "ok"), {}), ((3, APPEND, 10, "ok"), {}), ((7, COMMIT, 10, "ok"), {}),
    ],
    "backwards": [((1, START, 10, "ok"), {}), ((2, APPEND, 10, "ok"), {}),
                  ((2, APPEND, 10, "ok"), {}), ((3, APPEND, 10, "ok"), {})],
    "unknown": [((2, APPEND), {})],
    "ping": [((1, START, 2), {}), ((1, PING, 2), {}), ((2, APPEND, 2), {}), ((2, PING, 2), {}),
             ((5, PING, 2), {}), ((3, APPEND, 2), {})],
    "ping over a gap": [((1, START, 2, "ok"), {}), ((4, PING, 2, "ok"), {}),
                        ((5, APPEND, 2, "ok"), {}), ((6, EOB, 2, "ok"), {})],
    "ping first": [((1, PING), {}), ((1, START), {})],
    "wrong expectation at first": [((1, START), {"Nats-Expected-Last-Sequence": "999"}),
                                   ((2, APPEND), {})],
    "wrong expectation later": [((1, START), {}),
                                ((2, APPEND), {"Nats-Expected-Last-Sequence": "999"}),
                                ((3, APPEND), {})],
    "wrong expectation in the commit": [((1, START), {}),
                                        ((2, COMMIT), {"Nats-Expected-Last-Sequence": "999"})],
    "a refusal among fine gaps": [
        ((1, START, 3, "ok"), {"Nats-Expected-Last-Sequence": "999"}),
        ((2, APPEND, 3, "ok"), {}),
        ((3, APPEND, 3, "ok"), {"Nats-Rollup": "sub"}),
        ((4, COMMIT, 3, "ok"), {"Nats-Expected-Stream": "other"}),
    ],
    "ids": [((1, START), {"Nats-Msg-Id": "one"}), ((2, APPEND), {"Nats-Msg-Id": "two"}),
            ((3, APPEND), {"Nats-Msg-Id": "one"}), ((4, COMMIT), {"Nats-Msg-Id": "two"})],
    "ids again": [((1, COMMIT), {"Nats-Msg-Id": "one"})],
    "ids again, in a batch": [((1, START, 2), {"Nats-Msg-Id": "one"}),
                              ((2, APPEND, 2), {"Nats-Msg-Id": "two"}),
                              ((3, COMMIT, 2), {"Nats-Msg-Id": "three"})],
    "levels": [((1, START), {"Nats-Required-Api-Level": "2"}),
               ((2, APPEND), {"Nats-Required-Api-Level": "99"}), ((3, EOB), {})],
    "no start": [((1, APPEND), {})],
    "a late start": [((2, START), {})],
    "an empty end": [((1, EOB), {})],
    "sequence zero": [((0, START), {})],
    "an operation that is none": [((1, 5), {})],
    "a gap mode that is none": [((1, START, 10, "maybe"), {})],
    "two commits": [((1, COMMIT), {}), ((2, COMMIT), {})],
}  # fmt: skip


async def test_fast_batches_are_answered_as_by_the_reference(tmp_path: Path):
    async def scenario(client: Client) -> list[Any]:
        seen = [await api(client, "STREAM.CREATE.F", FAST)]
        publisher = await Publisher(client).listen()
        for number, (title, steps) in enumerate(SCRIPTS.items()):
            for step, headers in steps:
                await publisher.send(f"id{number}", *step, headers=headers or None)
                seen.append((title, step, await publisher.quiet()))
            seen.append((title, await state(client)))
        await publisher.send("x" * 65, 1, START)
        seen.append(await publisher.quiet())
        await client.publish("f.a", b"", reply=f"{publisher.inbox}.1.0.$FI")
        seen.append(await publisher.quiet())
        seen += [await api(client, "STREAM.MSG.GET.F", {"seq": seq}) for seq in (1, 3, 5)]
        return seen

    await both(tmp_path, scenario)


async def test_fast_batches_side_by_side_share_the_answers_as_at_the_reference(tmp_path: Path):
    async def scenario(client: Client) -> list[Any]:
        await api(client, "STREAM.CREATE.F", FAST)
        publisher = await Publisher(client).listen()
        seen = []
        for seq in range(1, 12):
            for batch in ("one", "two", "three"):
                await publisher.send(batch, seq, START if seq == 1 else APPEND, 4)
                seen.append((batch, seq, await publisher.quiet()))
        for batch in ("one", "two", "three"):
            await publisher.send(batch, 12, EOB, 4)
            seen.append((batch, await publisher.quiet()))
        return [*seen, await state(client)]

    await both(tmp_path, scenario)


async def test_streams_refuse_fast_batches_as_the_reference_does(tmp_path: Path):
    async def scenario(client: Client) -> list[Any]:
        seen = []
        publisher = await Publisher(client).listen()
        for config in ({"allow_batched": False}, {"max_msg_size": 2}):
            await api(client, "STREAM.CREATE.F", FAST | config)
            await publisher.send("a", 1, START, data=b"four")
            seen.append(await publisher.quiet())
            await publisher.send("b", 1, COMMIT, data=b"")
            seen += [await publisher.quiet(), await state(client)]
            await api(client, "STREAM.DELETE.F")
        await api(client, "STREAM.CREATE.F", FAST | {"discard": "new", "max_msgs": 2})
        for seq in (1, 2, 3):
            await publisher.send("c", seq, START if seq == 1 else APPEND)
            seen.append(await publisher.quiet())
        # An update ends batches where they are no longer allowed.
        await api(client, "STREAM.UPDATE.F", FAST | {"max_msgs": 3})
        await publisher.send("d", 1, START)
        seen.append(await publisher.quiet())
        await api(client, "STREAM.UPDATE.F", FAST | {"allow_batched": False, "max_msgs": 3})
        await api(client, "STREAM.UPDATE.F", FAST | {"max_msgs": 3})
        await publisher.send("d", 2, APPEND)
        return [*seen, await publisher.quiet(), await state(client)]

    await both(tmp_path, scenario)


async def test_a_fast_batch_counts_and_schedules_like_other_publishes(tmp_path: Path):
    async def scenario(client: Client) -> list[Any]:
        await api(client, "STREAM.CREATE.F", FAST | {"allow_msg_counter": True})
        publisher = await Publisher(client).listen()
        for seq, incr in ((1, "2"), (2, "3"), (3, "")):
            headers = {"Nats-Incr": incr} if incr else None
            op = START if seq == 1 else APPEND
            await publisher.send("a", seq, op, data=b"", headers=headers)
        await publisher.quiet()
        return [await api(client, "STREAM.MSG.GET.F", {"last_by_subj": "f.a"})]

    await both(tmp_path, scenario)


async def test_a_fast_batch_sent_without_waiting_is_stored_whole(tmp_path: Path):
    async def scenario(client: Client) -> list[Any]:
        await api(client, "STREAM.CREATE.F", FAST)
        publisher = await Publisher(client).listen()
        for seq in range(1, 3001):
            await publisher.send("a", seq, START if seq == 1 else APPEND, 100)
        await publisher.send("a", 3001, EOB, 100)
        heard = await publisher.quiet()
        while not heard or heard[-1][1].get("batch") is None:
            heard += await publisher.quiet()
        # How far the last of them are may be told by the end of the batch alone.
        acks = [a["seq"] for _, a in heard if a.get("type") == "ack" and a["seq"] < 3000]
        return [heard[0], acks, heard[-1], await state(client)]

    await both(tmp_path, scenario)


@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_plain_publishes_between_those_of_a_fast_batch_are_acknowledged(
    tmp_path: Path, storage: str
):
    async def scenario(client: Client) -> list[Any]:
        await api(client, "STREAM.CREATE.F", FAST | {"storage": storage})
        publisher = await Publisher(client).listen()
        for seq in range(1, 5):
            await publisher.send("a", seq, START if seq == 1 else APPEND)
            await client.publish("f.b", b"y", reply=f"{publisher.inbox}.plain.{seq}")
        await publisher.send("a", 5, EOB)
        return [sorted(await publisher.quiet(), key=str), await state(client)]

    await both(tmp_path, scenario)


def atomic(batch: str, seq: Any, commit: str = "", **more: str) -> dict[str, str]:
    headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(seq)}
    if commit:
        headers["Nats-Batch-Commit"] = commit
    return headers | {key.replace("_", "-"): value for key, value in more.items()}


async def tell(client: Client, subject: str, headers: dict[str, str], data: bytes = b"x") -> Any:
    reply = await client.request(subject, data, timeout=20, headers=headers)
    return reply.data and json.loads(reply.data)


ABANDONED = 4  # of the batches below
ATOMIC = {"name": "A", "subjects": ["a.*"], "allow_atomic": True}
LAST, SUBJECT_LAST = "Nats_Expected_Last_Sequence", "Nats_Expected_Last_Subject_Sequence"
ATOMIC_STEPS: list[tuple[str, list[tuple[str, dict[str, str]]]]] = [
    ("subject seen in the batch", [
        ("a.x", atomic("1", 1)), ("a.x", atomic("1", 2, "1", **{SUBJECT_LAST: "1"}))]),
    ("subject seen in the batch, expected anew", [
        ("a.y", atomic("2", 1)), ("a.y", atomic("2", 2, "1", **{SUBJECT_LAST: "0"}))]),
    ("plain", [("a.x", atomic("3", 1)), ("a.y", atomic("3", 2, "1"))]),
    ("subject as stored", [("a.y", atomic("4", 1, **{SUBJECT_LAST: "2"})),
                           ("a.x", atomic("4", 2, "1", **{SUBJECT_LAST: "1"}))]),
    ("subject not as stored", [("a.y", atomic("5", 1, **{SUBJECT_LAST: "2"})),
                               ("a.x", atomic("5", 2, "1"))]),
    ("another subject", [("a.z", atomic("6", 1)), ("a.w", atomic(
        "6", 2, "1", **{SUBJECT_LAST: "3", SUBJECT_LAST + "_Subject": "a.y"}))]),
    ("another subject of the batch", [("a.z", atomic("7", 1)), ("a.w", atomic(
        "7", 2, "1", **{SUBJECT_LAST: "5", SUBJECT_LAST + "_Subject": "a.z"}))]),
    ("subjects by pattern", [("a.q", atomic("8", 1)), ("a.w", atomic(
        "8", 2, "1", **{SUBJECT_LAST: "6", SUBJECT_LAST + "_Subject": "a.*"}))]),
    ("no sequence for a subject", [("a.q", atomic("9", 1)), ("a.w", atomic(
        "9", 2, "1", **{SUBJECT_LAST + "_Subject": "a.*"}))]),
    ("sequence at first", [("a.x", atomic("10", 1, **{LAST: "8"})), ("a.x", atomic("10", 2, "1"))]),
    ("wrong sequence at first", [("a.x", atomic("11", 1, **{LAST: "8"})),
                                 ("a.x", atomic("11", 2, "1"))]),
    ("sequence later, as it would be", [("a.x", atomic("12", 1)),
                                        ("a.x", atomic("12", 2, "1", **{LAST: "11"}))]),
    ("sequence later, as it is", [("a.x", atomic("13", 1)),
                                  ("a.x", atomic("13", 2, "1", **{LAST: "10"}))]),
    ("expected stream", [("a.x", atomic("14", 1, Nats_Expected_Stream="B")),
                         ("a.x", atomic("14", 2, "1"))]),
    ("lifetime", [("a.x", atomic("15", 1, Nats_TTL="5s")), ("a.x", atomic("15", 2, "1"))]),
    ("levels", [("a.x", atomic("16", 1, Nats_Required_Api_Level="1")),
                ("a.x", atomic("16", 2, Nats_Required_Api_Level="99")),
                ("a.x", atomic("16", 3, "1"))]),
    ("level alone", [("a.x", atomic("17", 1, "1", Nats_Required_Api_Level="1"))]),
    ("a source header", [("a.x", atomic("18", 1, "1", Nats_Stream_Source="s 1 > > x"))]),
    ("an id stored before", [("a.x", {"Nats-Msg-Id": "k"}),
                             ("a.x", atomic("19", 1, Nats_Msg_Id="k")),
                             ("a.x", atomic("19", 2, "1"))]),
    ("sequence zero", [("a.x", atomic("20", 0))]),
    ("sequence that is none", [("a.x", atomic("21", "x"))]),
    ("end at once", [("a.x", atomic("22", 1, "eob"))]),
    ("end of two", [("a.x", atomic("23", 1)), ("a.x", atomic("23", 2)),
                    ("a.x", atomic("23", 3, "eob"))]),
    ("a gap", [("a.x", atomic("24", 1)), ("a.x", atomic("24", 3)), ("a.x", atomic("24", 2, "1"))]),
    ("no id", [("a.x", {"Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"})]),
    ("both kinds", [("a.x", atomic("25", 1, Nats_Msg_Id="n1")),
                    ("a.x", atomic("25", 2, "1", Nats_Msg_Id="n2"))]),
]  # fmt: skip


async def test_atomic_batches_check_their_messages_as_the_reference_does(tmp_path: Path):
    async def scenario(client: Client) -> list[Any]:
        advised: list[Any] = []
        all_told = asyncio.Event()

        async def note(msg: Any) -> None:
            told = json.loads(msg.data)
            assert told.pop("id")
            assert told.pop("timestamp")
            advised.append((msg.subject, told))
            if len(advised) == ABANDONED:
                all_told.set()

        await client.subscribe("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.>", cb=note)
        seen = [await api(client, "STREAM.CREATE.A", ATOMIC)]
        for title, steps in ATOMIC_STEPS:
            for subject, headers in steps:
                seen.append((title, headers, await tell(client, subject, headers)))
            seen.append((title, await state(client, "A")))
        for seq in range(1, 1002):
            headers = atomic("large", seq)
            if (answer := await tell(client, "a.x", headers)) or seq == 1001:
                seen.append((seq, answer))
        last = (await state(client, "A"))[1]
        places = range(1, last + 1)
        seen += [await api(client, "STREAM.MSG.GET.A", {"seq": seq}) for seq in places]
        await asyncio.wait_for(all_told.wait(), WAIT)
        return [*seen, advised]

    await both(tmp_path, scenario)


async def test_the_number_of_open_atomic_batches_is_bounded_as_at_the_reference(tmp_path: Path):
    async def scenario(client: Client) -> list[Any]:
        await api(client, "STREAM.CREATE.A", ATOMIC)
        seen = [await tell(client, "a.x", atomic(f"b{n}", 1)) for n in range(52)]
        await api(client, "STREAM.UPDATE.A", {**ATOMIC, "allow_atomic": False})
        seen.append(await tell(client, "a.x", atomic("b1", 2)))
        await api(client, "STREAM.UPDATE.A", ATOMIC)
        seen.append(await tell(client, "a.x", atomic("b1", 2)))
        seen.append(await tell(client, "a.x", atomic("b50", 1)))
        await api(client, "STREAM.DELETE.A")
        await api(client, "STREAM.CREATE.A", ATOMIC)
        seen.append(await tell(client, "a.x", atomic("b50", 2, "1")))
        return seen

    await both(tmp_path, scenario)


async def test_atomic_batches_meet_the_limits_of_their_stream_as_at_the_reference(tmp_path: Path):
    async def scenario(client: Client) -> list[Any]:
        seen = []
        for limits in (
            {"discard": "new", "max_msgs": 2},
            {"discard": "new", "max_bytes": 100},
            {"discard": "new", "max_msgs_per_subject": 1, "discard_new_per_subject": True},
            {"max_msgs": 2},
            {"max_msg_size": 200},
            {"storage": "memory"},
        ):
            await api(client, "STREAM.CREATE.A", {**ATOMIC, **limits})
            for seq, commit in ((1, ""), (2, ""), (3, "1")):
                headers = atomic("b", seq, commit)
                seen.append((limits, await tell(client, "a.x", headers, b"y" * 30)))
            seen.append(await tell(client, "a.x", atomic("c", 1), b"y" * 150))
            seen.append(await state(client, "A"))
            await api(client, "STREAM.DELETE.A")
        return seen

    await both(tmp_path, scenario)
