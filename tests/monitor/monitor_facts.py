"""Facts of a server that never ran, and how to ask about them."""

from typing import Any

import msgspec

from millstream.clock import ManualClock
from millstream.http.request import Request
from millstream.http.response import Response
from millstream.http.routes import Routes
from millstream.monitor.facts import AccountFacts, ConnectionFacts, Facts, SubscriptionFacts
from millstream.monitor.routes import monitor_routes

SECOND = 1_000_000_000


def facts(**more: Any) -> Facts:
    """Return the facts of a server that started 61 seconds ago."""
    clock = ManualClock()
    started = clock.time_ns()
    clock.advance(61)
    given: dict[str, Any] = {
        "clock": clock,
        "started_ns": started,
        "server_id": "NID",
        "server_name": "mill",
        "nats_version": "2.15.1",
        "port": 4222,
        **more,
    }
    return Facts(**given)


def connection(cid: int, now_ns: int, **more: Any) -> ConnectionFacts:
    """Return a connection that came ``cid`` seconds ago."""
    given: dict[str, Any] = {
        "ip": "127.0.0.1",
        "port": 40_000 + cid,
        "start_ns": now_ns - cid * SECOND,
        "last_activity_ns": now_ns - SECOND,
        **more,
    }
    return ConnectionFacts(cid, **given)


def subscription(cid: int, subject: str, sid: str = "1", **more: Any) -> SubscriptionFacts:
    given: dict[str, Any] = {"account": "$G", "queue": "", "msgs": 0, "max": 0, **more}
    return SubscriptionFacts(subject=subject, sid=sid, cid=cid, **given)


def busy_server() -> Facts:
    """Return a server with two accounts, three open connections and two closed ones."""
    made = facts()
    now = made.clock.time_ns()
    made.connections = lambda: [
        connection(
            3,
            now,
            name="three",
            in_msgs=5,
            out_msgs=1,
            num_subscriptions=2,
        ),
        connection(1, now, user="ann", account="A", in_msgs=7, out_bytes=100),
        connection(
            2,
            now,
            last_activity_ns=now,
            pending_bytes=12,
            num_subscriptions=1,
        ),
    ]
    listening = {
        2: (subscription(2, "orders.new"),),
        3: (
            subscription(3, "orders.*"),
            subscription(3, "jobs.>", "2", queue="workers", msgs=4, max=9),
        ),
    }
    made.subscriptions = lambda cid: listening.get(cid, ())
    made.closed = lambda: [
        connection(8, now, stop_ns=now - 2 * SECOND, reason="Stale Connection"),
        connection(9, now, stop_ns=now - SECOND, reason="Client Closed", account="A"),
    ]
    made.closed_by_reason = lambda: {"Stale Connection": 1, "Client Closed": 1}
    interest = {
        "num_subscriptions": 3,
        "num_matches": 4,
        "cache_hits": 1,
        "num_inserts": 5,
        "num_cache": 3,
        "max_fanout": 2,
        "avg_fanout": 1.0,
    }
    made.accounts = lambda: [
        AccountFacts("$G", interest, lambda: {"acc": "$G", "conns": 2}),
        AccountFacts(
            "A",
            {"num_subscriptions": 1, "num_cache": 1, "avg_fanout": 5.0},
            lambda: {"acc": "A", "conns": 1},
        ),
        AccountFacts("$SYS", is_system=True, has_jetstream=False),
    ]
    made.system_account = "$SYS"
    return made


async def get(asked: Facts, path: str, query: str = "") -> tuple[int, Any]:
    """Return the status and the decoded answer."""
    answer = await Routes(monitor_routes(asked))(Request("GET", path, query))
    assert isinstance(answer, Response)
    return answer.status, msgspec.json.decode(answer.body)


async def text(asked: Facts, path: str, query: str = "") -> str:
    """Return the answer as text, which must be a success."""
    answer = await Routes(monitor_routes(asked))(Request("GET", path, query))
    assert isinstance(answer, Response)
    assert answer.status == 200, answer.body
    return answer.body.decode()
