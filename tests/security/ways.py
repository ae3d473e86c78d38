"""Every way on which a record, or a message, could come to somebody who must not have it.

Each is a function: an attacker goes it, and it returns all that the attacker was told on the way.
``SHOWING`` are the ways to a record that was stored under log.secret, ``SPEAKING`` those to have a
message published to ``forbidden``.
"""

import base64
import itertools
import json
from collections.abc import Awaitable, Callable
from typing import Any

from matrix_site import SECRET, NatsWire, Site

Way = Callable[["Attacker"], Awaitable[bytes]]
SHOWING: dict[str, Way] = {}
SPEAKING: dict[str, Way] = {}
TO_NOBODY = ("advisories",)  # not even to those who may read the record
_numbers = itertools.count(1)
PAYLOAD = f'"{SECRET}"'.encode()
FORMS = (SECRET.encode(), base64.b64encode(PAYLOAD), base64.b64encode(SECRET.encode()))


def shows(told: bytes) -> bool:
    """Say whether a secret record is in what somebody was told, also in base64."""
    return any(form in told for form in FORMS)


def _showing(way: Way) -> Way:
    SHOWING[way.__name__] = way
    return way


def _speaking(way: Way) -> Way:
    SPEAKING[way.__name__] = way
    return way


class Attacker:
    """Somebody with a connection, a key to HTTP, and names of their own for what they make."""

    def __init__(self, site: Site, who: str, wire: NatsWire, boss: NatsWire) -> None:
        self.site = site
        self.who = who
        self.wire = wire
        self.boss = boss  # who may do everything, and does something now and then
        self.own = f"{who}{next(_numbers)}"

    async def api(self, operation: str, **body: Any) -> bytes:
        """Ask the API; returns the whole answer."""
        return (await self.wire.ask(f"$JS.API.{operation}", json.dumps(body).encode())).body

    async def http(self, method: str, path: str, body: object = None) -> bytes:
        """Ask over HTTP."""
        return (await self.site.http(self.who, method, path, body)).body

    def listen(self, subject: str, queue: str = "") -> None:
        """Subscribe, and never stop."""
        self.wire.say(f"SUB {subject} {queue} {900_000 + next(_numbers)}".encode())

    async def leak(self) -> None:
        """Have the secret published once more, and taken in by the server."""
        await self.boss.ask("log.secret", PAYLOAD)

    async def pulled(self, stream: str, **config: Any) -> bytes:
        """Return what a consumer of its own gives."""
        name = f"c{self.own}"
        told = await self.api(
            f"CONSUMER.CREATE.{stream}.{name}", stream_name=stream, config={"name": name, **config}
        )
        wish = json.dumps({"batch": 50, "expires": 200_000_000}).encode()
        inbox = f"_INBOX.pulled.{self.own}"
        self.listen(inbox)
        self.wire.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", wish, inbox)
        return told + await self.wire.until(b" 408 ")

    async def read(self, stream: str) -> bytes:
        """Return what can be had of a stream by the shorter ways."""
        told = b""
        for seq in range(1, 6):
            told += await self.api(f"STREAM.MSG.GET.{stream}", seq=seq)
            told += await self.api(f"DIRECT.GET.{stream}", seq=seq)
        told += (
            await self.wire.ask(f"$MILLSTREAM.API.READ.{stream}", b'{"from_seq":1,"to_seq":9}')
        ).body
        return told + await self.http("POST", f"/v0/topics/{stream}/diff", {})


# -- live and replayed --------------------------------------------------------------------------


@_showing
async def a_subscription(one: Attacker) -> bytes:
    one.listen("log.>")
    await one.wire.heard()
    await one.leak()
    return await one.wire.heard()


@_showing
async def a_queue_subscription(one: Attacker) -> bytes:
    one.listen("log.>", f"group{one.own}")
    await one.wire.heard()
    await one.leak()
    return await one.wire.heard()


@_showing
async def a_push_consumer(one: Attacker) -> bytes:
    inbox = f"_INBOX.pushed.{one.own}"
    one.listen(inbox)
    config = {"deliver_subject": inbox, "ack_policy": "none"}
    told = await one.api("CONSUMER.CREATE.LOG", stream_name="LOG", config=config)
    return told + await one.wire.heard_soon()


@_showing
async def a_pull_consumer(one: Attacker) -> bytes:
    return await one.pulled("LOG")


@_showing
async def a_filtered_pull_consumer(one: Attacker) -> bytes:
    return await one.pulled("LOG", filter_subject="log.secret")


# -- requests for records -----------------------------------------------------------------------


@_showing
async def a_message_by_sequence(one: Attacker) -> bytes:
    return b"".join([await one.api("STREAM.MSG.GET.LOG", seq=seq) for seq in range(1, 5)])


@_showing
async def the_last_message_of_a_subject(one: Attacker) -> bytes:
    return await one.api("STREAM.MSG.GET.LOG", last_by_subj="log.secret")


@_showing
async def a_direct_get(one: Attacker) -> bytes:
    return await one.api("DIRECT.GET.LOG", last_by_subj="log.secret")


@_showing
async def a_direct_get_by_subject(one: Attacker) -> bytes:
    return (await one.wire.ask("$JS.API.DIRECT.GET.LOG.log.secret")).body


@_showing
async def a_direct_get_of_many(one: Attacker) -> bytes:
    told = (
        await one.wire.ask("$JS.API.DIRECT.GET.LOG", b'{"multi_last":["log.secret"],"batch":9}')
    ).body
    return told + await one.wire.heard()


@_showing
async def frames_over_nats(one: Attacker) -> bytes:
    return (await one.wire.ask("$MILLSTREAM.API.READ.LOG", b'{"from_seq":1,"to_seq":9}')).body


@_showing
async def a_snapshot(one: Attacker) -> bytes:
    inbox = f"_INBOX.chunks.{one.own}"
    one.listen(inbox)
    told = await one.api("STREAM.SNAPSHOT.LOG", deliver_subject=inbox, no_consumers=True)
    return told + await one.wire.heard_soon()


# -- copies -------------------------------------------------------------------------------------


@_showing
async def a_mirror(one: Attacker) -> bytes:
    await one.api(
        f"STREAM.CREATE.M{one.own}", name=f"M{one.own}", mirror={"name": "LOG"}, allow_direct=True
    )
    return await one.pulled(f"M{one.own}") + await one.read(f"M{one.own}")


@_showing
async def a_source(one: Attacker) -> bytes:
    await one.api(
        f"STREAM.CREATE.S{one.own}",
        name=f"S{one.own}",
        sources=[{"name": "LOG"}],
        allow_direct=True,
    )
    return await one.pulled(f"S{one.own}") + await one.read(f"S{one.own}")


@_showing
async def a_renaming_source(one: Attacker) -> bytes:
    renamed = [{"src": "log.secret", "dest": f"shown{one.own}"}]
    source = {"name": "LOG", "subject_transforms": renamed}
    await one.api(
        f"STREAM.CREATE.R{one.own}", name=f"R{one.own}", sources=[source], allow_direct=True
    )
    return await one.pulled(f"R{one.own}") + await one.read(f"R{one.own}")


@_showing
async def a_republishing_mirror(one: Attacker) -> bytes:
    one.listen(f"out{one.own}.>")
    out = {"src": ">", "dest": f"out{one.own}.>"}
    config = {"name": f"P{one.own}", "mirror": {"name": "LOG"}, "republish": out}
    told = await one.api(f"STREAM.CREATE.P{one.own}", **config)
    return told + await one.wire.heard_soon()


@_showing
async def a_schedule(one: Attacker) -> bytes:
    """A message that a stream publishes later, with the newest payload of another subject."""
    shown = f"log.shown{one.own}"
    lines = (
        b"Nats-Schedule: @at 2020-01-01T00:00:00Z\r\nNats-Schedule-Source: log.secret\r\n"
        b"Nats-Schedule-Target: %b\r\n" % shown.encode()
    )
    one.listen(shown)
    told = (await one.wire.ask(f"log.plan{one.own}", b"x", lines)).body
    await one.wire.heard_soon()
    return (
        told
        + await one.api("DIRECT.GET.LOG", last_by_subj=shown)
        + await one.pulled("LOG", filter_subject=shown)
    )


@_showing
async def fewer_subjects_than_before(one: Attacker) -> bytes:
    """A stream that no longer lists a subject still holds its records."""
    config = {"name": "LOG", "allow_direct": True, "allow_msg_schedules": True}
    await one.api("STREAM.UPDATE.LOG", subjects=["log.open"], **config)
    told = await one.read("LOG")
    await one.boss.ask(
        "$JS.API.STREAM.UPDATE.LOG", json.dumps({**config, "subjects": ["log.>"]}).encode()
    )
    return told


# -- reply subjects -----------------------------------------------------------------------------


async def _caught(one: Attacker) -> str:
    """Make a stream that takes what is delivered to it."""
    name = f"CATCH{one.own}"
    await one.api(
        f"STREAM.CREATE.{name}", name=name, subjects=[f"caught{one.own}.>"], allow_direct=True
    )
    return name


@_showing
async def a_pull_into_a_stream(one: Attacker) -> bytes:
    name = await _caught(one)
    consumer = f"i{one.own}"
    await one.api(f"CONSUMER.CREATE.LOG.{consumer}", stream_name="LOG", config={"name": consumer})
    wish = b'{"batch":9,"no_wait":true}'
    one.wire.publish(f"$JS.API.CONSUMER.MSG.NEXT.LOG.{consumer}", wish, f"caught{one.own}.x")
    told = await one.wire.heard_soon()
    return told + await one.read(name) + await one.pulled(name)


@_showing
async def a_push_into_a_stream(one: Attacker) -> bytes:
    name = await _caught(one)
    config = {"deliver_subject": f"caught{one.own}.y", "ack_policy": "none"}
    told = await one.api("CONSUMER.CREATE.LOG", stream_name="LOG", config=config)
    told += await one.wire.heard_soon()
    return told + await one.read(name) + await one.pulled(name)


@_showing
async def a_push_by_http_into_a_stream(one: Attacker) -> bytes:
    name = await _caught(one)
    config = {"deliver_subject": f"caught{one.own}.z", "ack_policy": "none"}
    told = await one.http("PUT", f"/v0/topics/LOG/consumers/h{one.own}", config)
    told += await one.wire.heard_soon()
    return told + await one.read(name) + await one.pulled(name)


# -- what tells of others -----------------------------------------------------------------------


@_showing
async def advisories(one: Attacker) -> bytes:
    """The server tells of requests and of their answers; of records it tells nobody."""
    one.listen("$JS.EVENT.>")
    await one.wire.heard()
    await one.boss.ask("$JS.API.STREAM.MSG.GET.LOG", b'{"last_by_subj":"log.secret"}')
    told = await one.wire.heard_soon()
    assert one.who == "elsewhere" or b"api_audit" in told
    return told


# -- HTTP ---------------------------------------------------------------------------------------


@_showing
async def a_request_over_http(one: Attacker) -> bytes:
    wish = {"subject": "$JS.API.STREAM.MSG.GET.LOG", "data": {"last_by_subj": "log.secret"}}
    return await one.http("POST", "/v0/request", wish)


@_showing
async def frames_by_a_request_over_http(one: Attacker) -> bytes:
    wish = {"subject": "$MILLSTREAM.API.READ.LOG", "data": {"from_seq": 1, "to_seq": 9}}
    told = json.loads(await one.http("POST", "/v0/request", wish))
    return b"".join(base64.b64decode(each.get("base64", "")) for each in told.get("replies", []))


@_showing
async def a_pull_over_http(one: Attacker) -> bytes:
    name = f"w{one.own}"
    await one.http("PUT", f"/v0/topics/LOG/consumers/{name}", {"ack_policy": "none"})
    wish = {
        "subject": f"$JS.API.CONSUMER.MSG.NEXT.LOG.{name}",
        "data": {"batch": 9, "no_wait": True},
    }
    return await one.http("POST", "/v0/request", wish | {"max_replies": 9, "timeout_ms": 300})


@_showing
async def a_message_sent_on_over_http(one: Attacker) -> bytes:
    inbox = f"sent.{one.own}"
    one.listen(inbox)
    wish = {"subject": "$JS.API.STREAM.MSG.GET.LOG", "data": {"last_by_subj": "log.secret"}}
    told = await one.http("POST", "/v0/publish", wish | {"reply": inbox})
    return told + await one.wire.heard_soon()


@_showing
async def a_diff(one: Attacker) -> bytes:
    return await one.http("POST", "/v0/topics/LOG/diff", {})


@_showing
async def a_search(one: Attacker) -> bytes:
    return await one.http("POST", "/v0/topics/LOG/browse", {"order": "oldest"})


@_showing
async def frames_over_http(one: Attacker) -> bytes:
    return await one.http("GET", "/v0/topics/LOG/frames?from_seq=1&to_seq=9")


@_showing
async def a_tail(one: Attacker) -> bytes:
    return await one.site.events(one.who, "/v0/topics/LOG/tail?from_seq=0")


@_showing
async def a_watch(one: Attacker) -> bytes:
    told = await one.http("POST", "/v0/watch", {"topics": {"LOG": {"from_seq": 0}}})
    url = json.loads(told).get("stream_url", "/v0/watch/none")
    return told + await one.site.events(one.who, url)


@_showing
async def a_websocket(one: Attacker) -> bytes:
    return await one.site.socket(one.who, {"op": "subscribe", "topic": "LOG", "from_seq": 0})


@_showing
async def a_router(one: Attacker) -> bytes:
    told = await one.http(
        "PUT", f"/v0/routers/r{one.own}", {"source": "LOG", "dest": f"d{one.own}"}
    )
    await one.leak()
    told += await one.http("GET", f"/v0/routers/r{one.own}")  # which brings it up to its source
    return told + await one.http("POST", f"/v0/topics/d{one.own}/diff", {})


@_showing
async def dead_letters(one: Attacker) -> bytes:
    """Jobs that failed too often are copied under the name of another topic."""
    boss = one.site
    jobs, letters = f"jobs{one.own}", f"letters{one.own}"
    queue = {"type": "queue", "max_deliveries": 1, "lease_ms": 100}
    await boss.http("all", "PUT", f"/v0/topics/{jobs}", queue | {"subjects": ["jobs.secret"]})
    await one.http(
        "PUT", f"/v0/topics/{jobs}", queue | {"subjects": ["jobs.secret"], "dead_letter": letters}
    )
    record = {"data": SECRET, "subject": "jobs.secret"}
    await boss.http("all", "POST", f"/v0/topics/{jobs}", {"records": [record]})
    for _ in range(2):
        await boss.http("all", "POST", f"/v0/topics/{jobs}/claim", {"node": "w"})
        await boss.http("all", "POST", f"/v0/topics/{jobs}/nack", {"node": "w", "seqs": [1]})
    told = await one.http("POST", f"/v0/topics/{letters}/diff", {})
    await boss.http("all", "DELETE", f"/v0/topics/{jobs}")
    return told


# -- speaking where one may not -----------------------------------------------------------------


@_speaking
async def a_publish(one: Attacker) -> bytes:
    one.wire.publish("forbidden", b"x")
    return await one.wire.heard()


@_speaking
async def a_publish_with_headers(one: Attacker) -> bytes:
    one.wire.publish("forbidden", b"x", headers=b"A: b\r\n")
    return await one.wire.heard()


@_speaking
async def the_reply_of_a_request(one: Attacker) -> bytes:
    one.wire.publish("$JS.API.INFO", b"", "forbidden")
    return await one.wire.heard_soon()


@_speaking
async def the_ack_of_a_publish(one: Attacker) -> bytes:
    one.wire.publish("log.open", b"1", "forbidden")
    return await one.wire.heard_soon()


@_speaking
async def the_reply_of_a_pull(one: Attacker) -> bytes:
    name = f"f{one.own}"
    await one.api(f"CONSUMER.CREATE.LOG.{name}", stream_name="LOG", config={"name": name})
    one.wire.publish(f"$JS.API.CONSUMER.MSG.NEXT.LOG.{name}", b'{"batch":1}', "forbidden")
    return await one.wire.heard_soon()


@_speaking
async def what_a_consumer_delivers(one: Attacker) -> bytes:
    config = {"deliver_subject": "forbidden", "ack_policy": "none"}
    told = await one.api("CONSUMER.CREATE.LOG", stream_name="LOG", config=config)
    return told + await one.wire.heard_soon()


@_speaking
async def what_a_consumer_delivers_by_http(one: Attacker) -> bytes:
    config = {"deliver_subject": "forbidden", "ack_policy": "none"}
    told = await one.http("PUT", f"/v0/topics/log/consumers/f{one.own}", config)
    told += await one.wire.heard_soon()
    await one.site.http("all", "DELETE", f"/v0/topics/log/consumers/f{one.own}")
    return told


@_speaking
async def what_a_stream_republishes(one: Attacker) -> bytes:
    name, out = f"F{one.own}", {"src": f"f{one.own}", "dest": "forbidden"}
    await one.api(f"STREAM.CREATE.{name}", name=name, subjects=[f"f{one.own}"], republish=out)
    return (await one.wire.ask(f"f{one.own}", b"x")).body


@_speaking
async def a_trace(one: Attacker) -> bytes:
    one.wire.publish("log.open", b"1", headers=b"Nats-Trace-Dest: forbidden\r\n")
    return await one.wire.heard_soon()


@_speaking
async def the_answer_of_a_service(one: Attacker) -> bytes:
    """A service may answer wherever it is asked to."""
    answering = await one.site.wire("answerer")
    answering.say(b"SUB service 1")
    await answering.heard()
    one.wire.publish("service", b"", "forbidden")
    await one.wire.heard()
    await answering.heard()
    answering.publish("forbidden", b"x")
    told = await answering.heard()
    await answering.close()
    return told


@_speaking
async def a_message_over_http(one: Attacker) -> bytes:
    return await one.http("POST", "/v0/publish", {"subject": "forbidden", "data": 1})


@_speaking
async def the_reply_of_a_message_over_http(one: Attacker) -> bytes:
    wish = {"subject": "$JS.API.INFO", "reply": "forbidden"}
    return await one.http("POST", "/v0/publish", wish) + await one.wire.heard_soon()


@_speaking
async def a_scheduled_message(one: Attacker) -> bytes:
    name = f"T{one.own}"
    config = {"subjects": [f"t{one.own}.>", "forbidden"], "allow_msg_schedules": True}
    await one.api(f"STREAM.CREATE.{name}", name=name, **config)
    lines = b"Nats-Schedule: @at 2020-01-01T00:00:00Z\r\nNats-Schedule-Target: forbidden\r\n"
    told = (await one.wire.ask(f"t{one.own}.x", b"x", lines)).body + await one.wire.heard_soon()
    stored = await one.boss.ask(f"$JS.API.STREAM.MSG.GET.{name}", b'{"last_by_subj":"forbidden"}')
    await one.api(f"STREAM.DELETE.{name}")
    return told + (b"SPOKEN" if stored.answer == "answered" else b"")
