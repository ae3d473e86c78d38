"""JetStream of one account used from another, through what that one exports."""

import json
from pathlib import Path
from typing import Any

from configured_pair import Place, both

from support.clients import flushed

CONFIG = """
jetstream: { store_dir: "DIRECTORY" }
accounts: {
  A: {
    users: [ {user: alice, password: secret} ]
    jetstream: enabled
    exports: [
      {service: "$JS.API.>", response_type: stream}, {service: "$JS.ACK.>"}, {stream: "to.>"}
      {service: "orders.>"}
    ]
  }
  B: {
    users: [ {user: bob, password: secret} ]
    imports: [
      {service: {account: A, subject: "$JS.API.>"}, to: "$JS.ofA.API.>"}
      {service: {account: A, subject: "$JS.ACK.>"}}
      {service: {account: A, subject: "orders.>"}}
      {stream: {account: A, subject: "to.>"}}
    ]
  }
}
"""


async def ask(client: Any, subject: str, body: Any = b"") -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return json.loads((await client.request(subject, data, timeout=5)).data)


async def stored(place: Place) -> tuple[Any, Any]:
    """Return alice and bob; bob has published three records into alice's stream."""
    alice, bob = await place.client("alice"), await place.client("bob")
    await ask(alice, "$JS.API.STREAM.CREATE.O", {"name": "O", "subjects": ["orders.>"]})
    for number in range(3):
        await ask(bob, f"orders.{number}", b"%d" % number)
    return alice, bob


async def consumer(bob: Any, name: str, **config: Any) -> None:
    wanted = {"durable_name": name, "ack_policy": "explicit", **config}
    subject = f"$JS.ofA.API.CONSUMER.CREATE.O.{name}"
    await ask(bob, subject, {"stream_name": "O", "config": wanted})


async def taken(bob: Any, inbox: Any) -> list[Any]:
    """Return the three records as they came, each acked and confirmed."""
    seen = []
    for _ in range(3):
        msg = await inbox.next_msg(5)
        ack = msg.reply.split(".")[:7]
        seen.append((msg.subject, ack, msg.headers, msg.data.decode()))
        seen.append((await bob.request(msg.reply, b"", timeout=5)).data.decode())
    return seen


async def state(alice: Any, name: str) -> Any:
    found = await ask(alice, f"$JS.API.CONSUMER.INFO.O.{name}")
    held = await ask(alice, "$JS.API.STREAM.INFO.O")
    floor = found["ack_floor"]["stream_seq"]
    return found["num_pending"], floor, held["state"]["messages"], held["state"]["bytes"]


async def test_what_another_account_pulls_comes_to_it_under_the_records_subjects(tmp_path: Path):
    async def scenario(place: Place) -> list[Any]:
        alice, bob = await stored(place)
        await consumer(bob, "C")
        inbox = await bob.subscribe("bobs.inbox")
        request = b'{"batch": 9, "no_wait": true}'
        await bob.publish("$JS.ofA.API.CONSUMER.MSG.NEXT.O.C", request, reply="bobs.inbox")
        seen = await taken(bob, inbox)
        status = (await inbox.next_msg(5)).headers
        return [*seen, status, await state(alice, "C")]

    seen = await both(tmp_path, CONFIG, scenario)
    assert [each[0] for each in seen[:6:2]] == ["orders.0", "orders.1", "orders.2"]
    assert seen[0][2] is None  # who published them is no part of the records
    assert seen[-1][:3] == (0, 3, 3)


async def test_what_is_pushed_to_an_imported_subject_is_no_new_message(tmp_path: Path):
    async def scenario(place: Place) -> list[Any]:
        alice, bob = await stored(place)
        inbox = await bob.subscribe("to.bob")
        await flushed(bob)
        await consumer(bob, "C", deliver_subject="to.bob")
        return [*await taken(bob, inbox), await state(alice, "C")]

    seen = await both(tmp_path, CONFIG, scenario)
    assert seen[-1][:3] == (0, 3, 3)  # bob's account imports the records' subjects as a service


async def test_a_request_whose_inbox_is_gone_takes_nothing_from_others(tmp_path: Path):
    async def scenario(place: Place) -> list[Any]:
        alice, bob = await stored(place)
        await consumer(bob, "C", deliver_policy="new")
        subject, request = "$JS.ofA.API.CONSUMER.MSG.NEXT.O.C", b'{"batch":1,"expires":5000000000}'
        gone = await bob.subscribe("bobs.first")
        await bob.publish(subject, request, reply="bobs.first")
        # A flush of this client overtakes what waits to be sent: the server itself is asked.
        while (await ask(alice, "$JS.API.CONSUMER.INFO.O.C"))["num_waiting"] == 0:
            pass
        await gone.unsubscribe()
        inbox = await bob.subscribe("bobs.second")
        await bob.publish(subject, request, reply="bobs.second")
        await ask(bob, "$JS.ofA.API.CONSUMER.INFO.O.C")
        await ask(bob, "orders.late", b"late")
        return [(await inbox.next_msg(5)).data]

    assert await both(tmp_path, CONFIG, scenario) == [b"late"]
