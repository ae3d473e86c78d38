"""Sessions over real sockets, polled by hand, with a clock that the test moves."""

import contextlib
import json
import os
import socket
from collections.abc import Iterator

import pytest

from millstream.clock import ManualClock
from millstream.kernel._batch import Batch
from millstream.kernel._hub import Hub
from millstream.kernel._interest import Interest
from millstream.nats.session import NatsLimits
from millstream.nats.sessions import Sessions
from millstream.nats.transport.closed import Closed
from millstream.nats.transport.transport import Kind, Transport
from millstream.wire.info import server_info

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"protocol":1}\r\n'


class Serving:
    """Sessions without a loop: every exchange is one poll."""

    def __init__(self, limits: NatsLimits) -> None:
        self.clock = ManualClock()
        self.interest = Interest()
        info = server_info(bytes(32), host="127.0.0.1", port=4222, jetstream=True)
        self.sessions = Sessions(self.clock, self.interest, info, limits)
        self.sockets: list[socket.socket] = []

    def client(self, opening: bytes = CONNECT) -> socket.socket:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        ours.setblocking(False)
        self.sockets.append(ours)
        self.sessions.open(theirs.detach(), "127.0.0.1")
        if opening:
            said(ours)
            self.tell(ours, opening)
        return ours

    def tell(self, client: socket.socket, data: bytes) -> bytes:
        client.setblocking(True)
        client.sendall(data)
        client.setblocking(False)
        self.sessions.hub.poll()
        return said(client)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.sessions.hub.poll()
        self.sessions.tick()

    def close(self) -> None:
        self.sessions.close()
        for client in self.sockets:
            client.close()


def said(client: socket.socket) -> bytes:
    """Return what has arrived; ``<closed>`` ends it when the server hung up."""
    found = b""
    while True:
        try:
            data = client.recv(1 << 20)
        except BlockingIOError:
            return found
        except ConnectionResetError:
            return found + b"<reset>"
        if not data:
            return found + b"<closed>"
        found += data


@pytest.fixture
def serving(request: pytest.FixtureRequest) -> Iterator[Serving]:
    running = Serving(getattr(request, "param", NatsLimits()))
    yield running
    running.close()


class Collector:
    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def deliver(self, batch: Batch) -> None:
        self.batches.append(batch)


def test_info_comes_first_and_names_the_server(serving: Serving) -> None:
    client = serving.client(opening=b"")
    line = said(client)
    assert line.startswith(b"INFO {")
    assert line.endswith(b"\r\n")
    info = json.loads(line[5:])
    assert info["server_id"][0] == "N"
    assert len(info["server_id"]) == 56
    assert info["server_name"] == info["server_id"]
    assert (info["version"], info["proto"], info["headers"]) == ("2.15.1", 1, True)
    assert (info["client_id"], info["client_ip"]) == (1, "127.0.0.1")
    assert (info["jetstream"], info["max_payload"]) == (True, 1048576)
    assert "auth_required" not in info


def test_an_info_about_the_connection_follows_the_first_pong_only(serving: Serving) -> None:
    client = serving.client()
    pong, info = serving.tell(client, b"PING\r\n").split(b"\r\n", 1)
    assert pong == b"PONG"
    assert json.loads(info[5:])["connect_info"] is True
    assert serving.tell(client, b"PING\r\n") == b"PONG\r\n"


def test_a_client_of_protocol_zero_gets_no_second_info(serving: Serving) -> None:
    client = serving.client(b'CONNECT {"verbose":false}\r\n')
    assert serving.tell(client, b"PING\r\n") == b"PONG\r\n"


def test_connect_sub_and_unsub_are_acknowledged_to_a_verbose_client(serving: Serving) -> None:
    client = serving.client(b"")
    said(client)
    assert (
        serving.tell(client, b"CONNECT {}\r\nSUB a 1\r\nUNSUB 1\r\nUNSUB 9\r\n") == 4 * b"+OK\r\n"
    )


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (b"BOGUS\r\n", b"-ERR 'Unknown Protocol Operation'\r\n<closed>"),
        (b"PUB a 9999999\r\n", b"-ERR 'Maximum Payload Violation'\r\n<closed>"),
        (b"SUB " + b"a" * 5000, b"-ERR 'maximum control line exceeded'\r\n<closed>"),
        (b"PUB a\r\n", b"<closed>"),
        (b"SUB a\r\n", b"<closed>"),
        (b"CONNECT {bad\r\n", b"<closed>"),
        (b'CONNECT {"protocol":2}\r\n', b"-ERR 'invalid client protocol'\r\n<closed>"),
        (
            b'CONNECT {"headers":false,"no_responders":true}\r\n',
            b"-ERR 'no responders requires headers support'\r\n<closed>",
        ),
        (b'CONNECT {"account":"x"}\r\n', b"-ERR 'Authorization Violation'\r\n<closed>"),
        (b"SUB a..b 1\r\n", b"-ERR 'Invalid Subject'\r\n"),
        (b"SUB >.a 1\r\n", b"-ERR 'Invalid Subject'\r\n"),
    ],
)
def test_mistakes_are_answered_word_for_word(serving: Serving, line: bytes, answer: bytes) -> None:
    assert serving.tell(serving.client(), line) == answer


def test_a_first_connect_keeps_what_was_subscribed_before_it(serving: Serving) -> None:
    client = serving.client(opening=b"")
    answer = serving.tell(client, b"SUB a 1\r\n" + CONNECT + b"PUB a 2\r\nhi\r\n")
    assert answer.endswith(b"MSG a 1 2\r\nhi\r\n")


def test_a_second_connect_amends_the_first_and_drops_subscriptions(serving: Serving) -> None:
    client = serving.client()
    serving.tell(client, b"SUB a 1\r\nCONNECT {}\r\n")
    assert serving.tell(client, b"PUB a 0\r\n\r\n") == b""
    assert serving.interest.stats()["num_subscriptions"] == 0


def test_whoever_says_nothing_for_five_seconds_is_closed(serving: Serving) -> None:
    silent, talking = serving.client(opening=b""), serving.client()
    said(silent)
    serving.pass_time(4.9)
    assert said(silent) == b""
    serving.pass_time(0.1)
    assert said(silent) == b"-ERR 'Authentication Timeout'\r\n<closed>"
    assert serving.tell(talking, b"PING\r\n").startswith(b"PONG")


def test_half_an_operation_is_a_handshake_for_twenty_seconds_only(serving: Serving) -> None:
    client = serving.client(opening=b"")
    said(client)
    serving.tell(client, b"CONNECT {")
    serving.pass_time(5)
    for _ in range(29):
        assert serving.tell(client, b" ") == b""
        serving.pass_time(0.5)
    assert serving.tell(client, b" ") == b""
    serving.pass_time(0.5)
    assert said(client) == b"-ERR 'Authentication Timeout'\r\n<closed>"


def test_whoever_stops_in_the_middle_of_its_first_operation_is_closed(serving: Serving) -> None:
    client = serving.client(opening=b"")
    said(client)
    serving.tell(client, b"CONN")
    serving.pass_time(5)
    assert said(client) == b""
    serving.pass_time(1)
    assert said(client) == b"-ERR 'Authentication Timeout'\r\n<closed>"


def test_a_client_that_never_answers_pings_is_stale(serving: Serving) -> None:
    client = serving.client()
    serving.pass_time(120)  # CONNECT came within this interval
    assert said(client) == b""
    for _ in range(2):
        serving.pass_time(120)
        assert said(client) == b"PING\r\n"
    serving.pass_time(120)
    assert said(client) == b"-ERR 'Stale Connection'\r\n<closed>"


def test_a_pong_keeps_a_quiet_client_alive(serving: Serving) -> None:
    client = serving.client()
    for _ in range(12):
        serving.pass_time(120)
        if said(client) == b"PING\r\n":
            serving.tell(client, b"PONG\r\n")
    assert len(serving.sessions) == 1


@pytest.mark.parametrize("serving", [NatsLimits(max_connections=1)], indirect=True)
def test_a_connection_too_many_is_turned_away(serving: Serving) -> None:
    first = serving.client()
    second = serving.client(opening=b"")
    greeting, refusal, end = said(second).split(b"\r\n")
    assert greeting.startswith(b"INFO {")
    assert (refusal, end) == (b"-ERR 'maximum connections exceeded'", b"<closed>")
    assert serving.tell(first, b"PING\r\n").startswith(b"PONG")
    first.close()
    serving.sessions.hub.poll()
    assert said(serving.client(opening=b"")).startswith(b"INFO")


@pytest.mark.parametrize("serving", [NatsLimits(max_subscriptions=2)], indirect=True)
def test_a_subscription_too_many_is_refused_and_the_client_goes_on(serving: Serving) -> None:
    client = serving.client()
    answer = serving.tell(client, b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nPUB b 0\r\n\r\n")
    assert answer == b"-ERR 'maximum subscriptions exceeded'\r\nMSG b 2 0\r\n\r\n"


@pytest.mark.parametrize("cut", [1, 2, 3, 70_000, 300_000])
def test_a_large_payload_may_end_anywhere_in_a_read(serving: Serving, cut: int) -> None:
    client = serving.client()
    payload = os.urandom(300_001)
    message = b"SUB big 1\r\nPUB big %d\r\n%s\r\n" % (len(payload), payload)
    got, ours = b"", serving.sockets[0]
    for piece in (message[:-cut], message[-cut:]):
        for at in range(0, len(piece), 50_000):
            ours.setblocking(True)
            ours.sendall(piece[at : at + 50_000])
            ours.setblocking(False)
            serving.sessions.hub.poll()
            got += said(client)
    for _ in range(50):
        serving.sessions.hub.poll()
        got += said(client)
    assert got == b"MSG big 1 %d\r\n%s\r\n" % (len(payload), payload)


@pytest.mark.parametrize("serving", [NatsLimits(max_pending=1 << 20)], indirect=True)
def test_a_client_that_does_not_read_is_closed_and_its_publisher_is_not(serving: Serving) -> None:
    slow, publisher = serving.client(), serving.client()
    serving.tell(slow, b"SUB x 1\r\n")
    message = b"PUB x 60000\r\n" + b"y" * 60000 + b"\r\n"
    most = 0
    for _ in range(80):
        serving.tell(publisher, message)
        serving.sessions.hub.tick()
        serving.sessions.hub.poll()
        if len(serving.sessions) == 1:
            break
        most = max(most, serving.sessions.hub.connection_stats(1)["pending_bytes"])
    assert len(serving.sessions) == 1
    assert most <= (1 << 20) + 60_100
    assert serving.sessions.hub.stats()["slow_consumers"] == 1
    assert serving.tell(publisher, b"PING\r\n").startswith(b"PONG")


def test_a_publisher_into_a_paused_sink_is_not_read_until_it_is_resumed(serving: Serving) -> None:
    sink = Collector()
    handle = serving.interest.add_sink(b"s", sink)
    client = serving.client()
    serving.interest.pause_sink(handle, True)
    assert serving.tell(client, b"PUB s 1\r\n1\r\n") == b""
    assert serving.tell(client, b"PUB s 1\r\n2\r\nPING\r\n") == b""
    assert sum(map(len, sink.batches)) == 1
    serving.interest.pause_sink(handle, False)
    serving.sessions.hub.poll()
    assert said(client).startswith(b"PONG")
    assert sum(map(len, sink.batches)) == 2


@pytest.mark.parametrize("serving", [NatsLimits(max_pending=1 << 20)], indirect=True)
def test_a_client_that_asks_and_never_reads_its_answers_is_closed(serving: Serving) -> None:
    client = serving.client()
    flood = b"PING\r\n" * 20_000
    for _ in range(1000):
        if len(serving.sessions) == 0:
            break
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            client.send(flood)
        serving.sessions.hub.poll()
    assert serving.sessions.hub.stats()["slow_consumers"] == 1


class Taker:
    """Carries a fed connection's bytes nowhere: it only takes what there is."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.written: list[bytes] = []
        self.ended: int | None = None

    def output(self, cid: int) -> None:
        self.written.append(self._hub.take(cid))

    def closed(self, reason: int) -> None:
        self.ended = reason


def test_a_fed_connection_gets_its_output_from_its_carrier(serving: Serving) -> None:
    carrier = Taker(serving.sessions.hub)
    written = carrier.written
    cid = serving.sessions.open_fed(carrier, Transport(Kind.STANDARD, "10.0.0.1"))
    client = serving.client()
    serving.sessions.hub.feed(cid, CONNECT + b"SUB a 1\r\n")
    serving.tell(client, b"PUB a 2\r\nhi\r\n")
    assert written[0].startswith(b"INFO")
    assert b"".join(written[1:]) == b"MSG a 1 2\r\nhi\r\n"
    serving.sessions.hub.feed(cid, b"BOGUS\r\n")
    assert written[-1] == b"-ERR 'Unknown Protocol Operation'\r\n"
    assert carrier.ended == Closed.PROTOCOL
    assert len(serving.sessions) == 1


def test_a_client_that_hangs_up_leaves_nothing(serving: Serving) -> None:
    client = serving.client()
    serving.tell(client, b"SUB a 1\r\nSUB b.> q 2\r\nPUB a 100\r\nhalf")
    client.close()
    serving.sessions.hub.poll()
    assert len(serving.sessions) == 0
    assert serving.interest.nodes() == 1
