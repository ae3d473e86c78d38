"""Direct gets by subject: what key-value stores send most, answered as the reference answers."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from jetstream_broker import Broker, both
from nats.aio.client import Client

import nats
from support.nats_server import nats_server

GET = "$JS.API.DIRECT.GET"
_TIME = re.compile(rb"Nats-Time-Stamp: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z\r\n")


async def ask(client: Client, subject: str, body: Any = None) -> Any:
    data = b"" if body is None else json.dumps(body).encode()
    return json.loads((await client.request(f"$JS.API.{subject}", data, timeout=5)).data)


async def raw(port: int, requests: list[tuple[str, bytes]]) -> list[bytes]:
    """Send all requests at once; returns header block and payload of each answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB r.* 1\r\n')
    for at, (subject, body) in enumerate(requests):
        writer.write(b"PUB %s r.%d %d\r\n%s\r\n" % (subject.encode(), at, len(body), body))
    found: dict[int, bytes] = {}
    while len(found) < len(requests):
        line = (await reader.readline()).split()
        if line[:1] in ([b"MSG"], [b"HMSG"]):
            body = await reader.readexactly(int(line[-1]))
            found[int(line[1].removeprefix(b"r."))] = _TIME.sub(b"<time>", body)
    writer.close()
    return [found[at] for at in range(len(requests))]


async def steps(client: Client, port: int) -> list[bytes]:
    stream = {"name": "LONGER", "subjects": ["s.>"], "allow_direct": True}
    await ask(client, "STREAM.CREATE.LONGER", stream)
    for number in range(6):
        headers = {"A": "b" * number} if number % 2 else None
        await client.request(f"s.{number % 4}", b"x" * number, timeout=5, headers=headers)
    await client.request("s.gone", b"x", timeout=5)
    await ask(client, "STREAM.PURGE.LONGER", {"filter": "s.gone"})
    get = f"{GET}.LONGER"
    requests = [(f"{get}.s.{number}", b"") for number in range(4)]
    requests += [(f"{get}.s.*", b""), (f"{get}.s.none", b""), (f"{get}.s.gone", b""), (get, b"")]
    requests += [(f"{get}.s.1", b'{"no_hdr":true}'), (f"{get}.s.1", b'{"seq":1}')]
    requests += [(get, b'{"last_by_subj":"s.3"}'), (get, b'{"seq":2}')]
    return await raw(port, requests)


async def test_gets_by_subject_are_answered_as_the_reference_does(tmp_path: Path):
    broker = Broker(str(tmp_path / "ours"))
    client = await nats.connect(broker.start(), allow_reconnect=False)
    ours = await steps(client, client.connected_url.port)
    await client.close()
    await broker.stop()
    with nats_server("-js", "-sd", str(tmp_path / "theirs")) as reference:
        client = await nats.connect(reference.url, allow_reconnect=False)
        theirs = await steps(client, client.connected_url.port)
        await client.close()
    assert ours == theirs
    assert len(set(ours)) > 6


async def test_a_record_with_a_tag_is_shown_with_it(tmp_path: Path):
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start(), allow_reconnect=False)
    await ask(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "allow_direct": True})
    await client.request("s.a", b"x", timeout=5, headers={"Millstream-Tag": "t"})
    (answer,) = await raw(client.connected_url.port, [(f"{GET}.S.s.a", b"")])
    assert b"Millstream-Tag: t\r\n" in answer
    await client.close()
    await broker.stop()


async def test_a_mirror_answers_by_subject_under_its_origin_s_name(tmp_path: Path):
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start(), allow_reconnect=False)
    await ask(client, "STREAM.CREATE.O", {"name": "O", "subjects": ["s.>"], "allow_direct": True})
    await client.request("s.a", b"x", timeout=5)
    mirror = {"name": "MIRROR", "mirror": {"name": "O"}, "mirror_direct": True}
    await ask(client, "STREAM.CREATE.MIRROR", mirror)
    while not (await ask(client, "STREAM.INFO.MIRROR"))["state"]["messages"]:
        continue
    await ask(client, "STREAM.DELETE.O")
    (answer,) = await raw(client.connected_url.port, [(f"{GET}.O.s.a", b"")])
    assert b"Nats-Sequence: 1\r\n" in answer
    assert answer.endswith(b"\r\nx")
    await client.close()
    await broker.stop()


async def test_the_newest_of_many_subjects_say_which_they_are_also_without_headers(tmp_path: Path):
    async def scenario(client: Client) -> list[tuple[dict[str, str], bytes]]:
        stream = {"name": "S", "subjects": ["s.>"], "allow_direct": True}
        await ask(client, "STREAM.CREATE.S", stream)
        for number in range(3):
            await client.request(f"s.{number}", b"x", timeout=5)
        inbox = await client.subscribe("answers")
        await client.publish(f"{GET}.S", b'{"multi_last":["s.*"],"no_hdr":true}', reply="answers")
        found = [await inbox.next_msg(5) for _ in range(4)]
        return [({**(m.headers or {}), "Nats-Time-Stamp": ""}, m.data) for m in found]

    ours, theirs = await both(tmp_path, scenario)
    assert ours == theirs
    assert ours[0][0]["Nats-Subject"] == "s.0"


async def test_the_newest_up_to_a_time_that_fell_into_a_hole_are_the_reference_s(tmp_path: Path):
    async def scenario(client: Client) -> list[Any]:
        stream = {"name": "S", "subjects": ["s.>"], "allow_direct": True}
        await ask(client, "STREAM.CREATE.S", stream)
        times = []
        for number in range(8):
            await client.request(f"s.{number % 3}", b"%d" % number, timeout=5)
            got = await ask(client, "STREAM.MSG.GET.S", {"seq": number + 1})
            times.append(got["message"]["time"])
        for seq in (1, 4, 5, 8):
            await ask(client, "STREAM.MSG.DELETE.S", {"seq": seq})
        said = []
        for at, time in enumerate([*times, "2099-01-01T00:00:00Z"]):
            inbox = await client.subscribe(f"answers.{at}")
            body = json.dumps({"multi_last": ["s.*"], "up_to_time": time}).encode()
            await client.publish(f"{GET}.S", body, reply=f"answers.{at}")
            while not (found := await inbox.next_msg(5)).headers.get("Status"):
                said.append(found.data)
            said.append({**found.headers})
        return said

    ours, theirs = await both(tmp_path, scenario)
    assert ours == theirs


@pytest.mark.parametrize(
    "claims",
    [
        b"Nats-Sequence: 99\r\nNats-Stream: other\r\nNats-Time-Stamp: never\r\n\r\n",
        b"nats-sequence: 99\r\nNATS-STREAM: other\r\nnats-subject: x\r\n\r\n",
        b"Nats-Sequence: 98\r\nNats-Sequence: 99\r\n\r\n",
        b"A: b\nNats-Sequence: 99\r\n\r\n",
        b"A: b\r\n\r\nNats-Sequence: 99\r\n\r\n",
        b"Nats-Sequence: 99",
    ],
)
async def test_published_headers_never_stand_in_for_the_server_s_own(
    tmp_path: Path, claims: bytes
) -> None:
    broker = Broker(str(tmp_path))
    url = broker.start()
    client = await nats.connect(url)
    await ask(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "allow_direct": True})
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    block = b"NATS/1.0\r\n" + claims
    writer.write(b'CONNECT {"verbose":false,"headers":true}\r\nSUB r 1\r\n')
    writer.write(b"HPUB s r %d %d\r\n%sx\r\n" % (len(block), len(block) + 1, block))
    while not (await reader.readline()).startswith(b"MSG"):
        pass
    writer.close()
    port = int(url.rpartition(":")[2])
    batch = json.dumps({"seq": 1, "batch": 1}).encode()
    asked = [(f"{GET}.S.s", b""), (f"{GET}.S", b'{"seq":1}'), (f"{GET}.S", batch)]
    for found in (await raw(port, asked))[:2]:
        assert found.endswith(b"\r\n<time>\r\nx")
        assert b"\r\n\r\n" not in found
        head = found.lower()
        for name in (b"nats-sequence: 1\r\n", b"nats-stream: s\r\n", b"nats-subject: s\r\n"):
            assert head.count(name) == 1
            assert head.count(name.partition(b" ")[0]) == 1
        assert b"99" not in head
    await client.close()
    await broker.stop()


BATCHES: list[dict[str, Any]] = [
    {"batch": 3, "seq": 2},
    {"batch": 3, "seq": 2, "no_hdr": True},
    {"batch": 50, "next_by_subj": "s.1", "no_hdr": True},
    {"batch": 50, "next_by_subj": "s.*", "seq": 4},
    {"batch": 5, "start_time": "2001-01-01T00:00:00Z", "no_hdr": True},
    {"multi_last": ["s.*"], "seq": 8, "up_to_seq": 4},
    {"multi_last": ["s.*"], "seq": 4, "up_to_seq": 4},
    {"multi_last": ["s.none"], "seq": 4},
]


async def test_batches_end_with_the_count_that_the_reference_gives(tmp_path: Path):
    async def scenario(client: Client) -> list[list[tuple[dict[str, str], bytes]]]:
        stream = {"name": "S", "subjects": ["s.>"], "allow_direct": True}
        await ask(client, "STREAM.CREATE.S", stream)
        for number in range(9):
            await client.request(f"s.{number % 2}", b"x", timeout=5)
        seen = []
        for at, asked in enumerate(BATCHES):
            inbox = await client.subscribe(f"answers.{at}")
            await client.publish(f"{GET}.S", json.dumps(asked).encode(), reply=f"answers.{at}")
            found = [await inbox.next_msg(5)]
            while "Status" not in (found[-1].headers or {}):
                found.append(await inbox.next_msg(5))
            seen.append([({**(m.headers or {}), "Nats-Time-Stamp": ""}, m.data) for m in found])
        return seen

    ours, theirs = await both(tmp_path, scenario)
    assert ours == theirs
    assert ours[5][0][0]["Status"] == "204"


async def test_a_copy_is_out_and_readable_before_its_publisher_has_the_ack(tmp_path: Path):
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start(), allow_reconnect=False)
    await ask(client, "STREAM.CREATE.C", {"name": "C", "subjects": ["c.>"], "allow_direct": True})
    copied = {"src": "s.>", "dest": "c.>"}
    await ask(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "republish": copied})
    reader, writer = await asyncio.open_connection("127.0.0.1", client.connected_url.port)
    writer.write(b'CONNECT {"verbose":false,"headers":true}\r\nSUB c.> 1\r\nSUB ack 2\r\n')
    for number in range(20):
        writer.write(b"PUB s.%d ack 1\r\nx\r\n" % number)
        lines = []
        while not lines or b"MSG ack" not in lines[-1]:
            lines.append(await reader.readline())
        assert any(b"HMSG c.%d " % number in line for line in lines)
        (answer,) = await raw(client.connected_url.port, [(f"{GET}.C.c.{number}", b"")])
        assert b"Nats-Subject: c.%d\r\n" % number in answer
        last = await ask(client, "STREAM.MSG.GET.C", {"last_by_subj": f"c.{number}"})
        assert last["message"]["seq"] == number + 1
    writer.close()
    await client.close()
    await broker.stop()
