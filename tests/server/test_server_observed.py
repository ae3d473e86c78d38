"""The observer tells of connections while they last and after they ended."""

from collections.abc import Iterator

import pytest

from millstream.clock import ManualClock
from millstream.delivery.timers import Timers
from millstream.kernel._interest import Interest
from millstream.nats.session import NatsLimits
from millstream.nats.sessions import Sessions
from millstream.nats.transport.closed import Closed
from millstream.nats.transport.transport import Kind, Transport
from millstream.server.observer import CLOSED_SUBSCRIPTIONS, Observer
from millstream.wire.info import server_info

CONNECT = b'CONNECT {"verbose":false,"name":"app","lang":"go","version":"1.2"}\r\n'


class Nowhere:
    """A carrier that drops what it is given."""

    def output(self, cid: int) -> None: ...

    def closed(self, reason: int) -> None: ...


class Server:
    """Sessions, their observer and the time."""

    def __init__(self, keep: int = 10_000) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        info = server_info(b"s" * 32, host="127.0.0.1", port=0)
        self.sessions = Sessions(self.clock, Interest(), info, NatsLimits())
        self.observer = Observer(self.sessions, self.clock, self.timers, keep)

    def client(self, *lines: bytes, kind: Kind = Kind.STANDARD) -> int:
        cid = self.sessions.open_fed(Nowhere(), Transport(kind, "10.0.0.7"))
        self.feed(cid, CONNECT, *lines)
        return cid

    def feed(self, cid: int, *lines: bytes) -> None:
        self.sessions.hub.feed(cid, b"".join(lines))

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.timers.run_due()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.sessions.close()


def test_an_open_connection_shows_who_it_is_and_what_it_moved(server: Server) -> None:
    started = server.clock.time_ns()
    server.client(b"SUB a 1\r\n", b"PUB a 2\r\nhi\r\n")
    server.client(kind=Kind.WEBSOCKET)
    first, second = server.observer.connections()
    assert (first.ip, first.name, first.lang, first.version) == ("10.0.0.7", "app", "go", "1.2")
    assert (first.in_msgs, first.in_bytes, first.out_msgs) == (1, 2, 1)
    assert (first.type, second.type) == ("nats", "websocket")
    assert (first.account, first.start_ns, first.stop_ns) == ("$G", started, 0)
    listened = server.observer.subscriptions(first.cid)
    assert [(s.subject, s.sid, s.msgs) for s in listened] == [("a", "1", 1)]


def test_open_connections_are_added_up(server: Server) -> None:
    server.client(b"SUB a 1\r\n", b"PUB a 2\r\nhi\r\n")
    server.client(b"SUB b 1\r\n", b"SUB c 2\r\n")
    totals = server.observer.open_totals()
    assert (totals["num_connections"], totals["subscriptions"], totals["in_msgs"]) == (2, 3, 1)


def test_activity_moves_with_time_and_silence_does_not(server: Server) -> None:
    cid = server.client()
    server.pass_time(5)
    server.feed(cid, b"PING\r\n")
    active = server.clock.time_ns()
    server.pass_time(5)
    (seen,) = server.observer.connections()
    assert seen.last_activity_ns == active


def test_a_closed_connection_is_kept_with_its_figures_and_the_reason(server: Server) -> None:
    cid = server.client(b"SUB a.* 1\r\n", b"PUB b 2\r\nhi\r\n")
    server.pass_time(3)
    server.sessions.hub.close_connection(cid, Closed.STALE)
    assert server.observer.connections() == []
    (last,) = server.observer.closed()
    assert (last.cid, last.reason, last.in_msgs) == (cid, "Stale Connection", 1)
    assert last.stop_ns == server.clock.time_ns()
    assert [s.subject for s in last.subscriptions] == ["a.*"]
    assert server.observer.closed_by_reason() == {"Stale Connection": 1}


def test_only_so_many_closed_connections_are_kept() -> None:
    server = Server(keep=2)
    cids = [server.client() for _ in range(3)]
    for cid in cids:
        server.sessions.hub.close_connection(cid, Closed.CLIENT)
    assert [each.cid for each in server.observer.closed()] == cids[1:]
    assert server.observer.closed_by_reason() == {"Client Closed": 3}
    server.sessions.close()


def test_a_closed_connection_keeps_a_few_subscriptions_and_counts_all(server: Server) -> None:
    many = CLOSED_SUBSCRIPTIONS + 5
    cid = server.client(*(b"SUB s.%d %d\r\n" % (n, n) for n in range(many)))
    server.sessions.hub.close_connection(cid, Closed.CLIENT)
    (last,) = server.observer.closed()
    assert (last.num_subscriptions, len(last.subscriptions)) == (many, CLOSED_SUBSCRIPTIONS)


def test_accounts_keep_what_their_closed_connections_moved(server: Server) -> None:
    for reason in (Closed.CLIENT, Closed.SLOW_CONSUMER):
        cid = server.client(b"PUB b 2\r\nhi\r\n")
        server.sessions.hub.close_connection(cid, reason)
    found = {account.name: account for account in server.observer.accounts()}
    figures = found["$G"].figures()
    assert (figures["received"]["msgs"], figures["received"]["bytes"]) == (2, 4)
    assert (figures["slow_consumers"], figures["conns"]) == (1, 0)
    assert (found["$SYS"].is_system, found["$SYS"].has_jetstream) == (True, False)


def test_every_reason_has_nats_servers_words(server: Server) -> None:
    for reason in Closed:
        server.sessions.hub.close_connection(server.client(), reason)
    assert "Unknown State" not in server.observer.closed_by_reason()
