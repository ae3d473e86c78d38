"""The hub with real sockets: what is lent, queued, held back and given up."""

import contextlib
import select
import socket
import time
from random import Random

import pytest
from hub_recorder import QUIET, Recorder

from millstream.kernel import _hub
from millstream.kernel._batch import Batch
from millstream.nats.transport.closed import Closed

LARGE = 40_000


class Wire:
    """A client's end of a connection, and its id at the hub."""

    def __init__(self, door: Recorder) -> None:
        self.socket, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.socket.settimeout(5)
        self.cid = door.hub.attach(theirs.detach(), door.interest)
        door.hub.configure(self.cid, **QUIET)

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def exchange(door: Recorder, out: Wire, data: bytes, into: Wire, most: int = 1 << 20) -> bytes:
    """Send ``data``, and read in pieces of ``most`` until nothing moves any more."""
    out.socket.setblocking(False)
    into.socket.setblocking(False)
    received = []
    quiet = 0
    while quiet < 3:
        quiet += 1
        try:
            data = data[out.socket.send(data) :] if data else data
            quiet = 0 if data else quiet
        except BlockingIOError:
            pass
        door.hub.poll()
        try:
            received.append(into.socket.recv(most))
            quiet = 0
        except BlockingIOError:
            pass
    return b"".join(received)


@pytest.mark.parametrize("most", [1 << 20, 7_001])
def test_large_and_small_messages_arrive_whole_and_in_order(most: int) -> None:
    door = Recorder()
    random = Random(most)
    sizes = [random.choice([0, 5, 900, 4_090, 5_000, LARGE, 150_000]) for _ in range(60)]
    payloads = [random.randbytes(size) for size in sizes]
    sent = b"".join(b"PUB x %d\r\n%s\r\n" % (len(p), p) for p in payloads)
    with Wire(door) as a, Wire(door) as b:
        door.hub.subscribe(b.cid, b"x", b"", b"1")
        got = exchange(door, a, sent, b, most)
    assert got == b"".join(b"MSG x 1 %d\r\n%s\r\n" % (len(p), p) for p in payloads)


def test_a_subscriber_that_reads_slowly_gets_large_messages_and_answers_in_order() -> None:
    door = Recorder()
    payload = bytes(range(256)) * (LARGE // 256)
    operation = b"PUB x %d\r\n%s\r\nPING\r\n" % (len(payload), payload)
    delivery = b"MSG x 1 %d\r\n%s\r\nPONG\r\n" % (len(payload), payload)
    with Wire(door) as a:
        door.hub.subscribe(a.cid, b"x", b"", b"1")
        assert exchange(door, a, 50 * operation, a, 3_333) == 50 * delivery


def test_a_subscriber_that_hangs_up_between_large_messages_harms_nobody() -> None:
    door = Recorder()
    operation = b"PUB x %d\r\n%s\r\n" % (LARGE, LARGE * b"y")
    with Wire(door) as a, Wire(door) as gone, Wire(door) as b:
        for wire in (gone, b):
            door.hub.subscribe(wire.cid, b"x", b"", b"1")
        gone.socket.close()
        got = exchange(door, a, 20 * operation, b)
        assert got.count(b"MSG") == 20
        assert door.hub.connections() == [a.cid, b.cid]


def test_closing_another_connection_leaves_the_input_being_parsed_alone() -> None:
    door = Recorder()
    input_ = b"CONNECT {}\r\n" + b"".join(b"PUB x 1000\r\n%01000d\r\n" % i for i in range(150))
    with Wire(door) as a, Wire(door) as b, Wire(door) as kicked:
        door.on_connect = lambda cid, options: door.hub.close_connection(  # type: ignore[method-assign]
            kicked.cid, 200
        )
        door.hub.subscribe(b.cid, b"x", b"", b"1")
        kicked.socket.sendall(100_000 * b"?")
        got = exchange(door, a, input_, b)
    assert got == b"".join(b"MSG x 1 1000\r\n%01000d\r\n" % i for i in range(150))


def test_a_copy_of_a_closed_connections_descriptor_wakes_nobody() -> None:
    door = Recorder()
    ours, theirs = socket.socketpair()
    copy = theirs.dup()  # as a child process has it
    theirs.setblocking(False)
    cid = door.hub.attach(theirs.detach(), door.interest)
    door.hub.close_connection(cid, 200)
    with ours, copy:
        ours.sendall(b"PING\r\n")
        assert select.select([door.hub.fd], [], [], 0)[0] == []


def test_a_publisher_held_back_for_a_slow_client_goes_on_by_itself_in_milliseconds() -> None:
    door = Recorder(max_pending=1_000_000)
    operation = b"PUB x %d\r\n%s\r\n" % (LARGE, LARGE * b"y")
    with Wire(door) as a, Wire(door) as stuck:
        door.hub.subscribe(stuck.cid, b"x", b"", b"1")
        a.socket.setblocking(False)
        started, held, rest = time.monotonic(), 0, b""
        while stuck.cid in door.hub.connections():
            assert time.monotonic() < started + 5
            rest = rest or operation
            with contextlib.suppress(BlockingIOError):
                rest = rest[a.socket.send(rest) :]
            door.hub.poll()
            held += door.hub.is_stalled(a.cid)
        assert held > 0
        assert ("closed", stuck.cid, _hub.SLOW_CONSUMER) in door.calls
        assert not door.hub.is_stalled(a.cid)


def test_a_client_that_takes_nothing_for_the_write_deadline_is_closed() -> None:
    door = Recorder(write_deadline=10.0)
    with Wire(door) as a, Wire(door) as stuck:
        for wire in (a, stuck):
            door.hub.write(wire.cid, 2_000_000 * b"y")
        door.hub.poll()
        door.hub.tick(100.0)
        a.socket.recv(1 << 20)
        door.hub.poll()
        door.hub.tick(109.0)
        assert len(door.hub.connections()) == 2
        door.hub.tick(111.0)
        assert door.hub.connections() == [a.cid]
        assert ("closed", stuck.cid, _hub.WRITE_DEADLINE) in door.calls
        assert door.hub.stats()["slow_consumers"] == 1


def test_an_emptied_outbox_keeps_no_memory_to_speak_of() -> None:
    door = Recorder()
    with Wire(door) as a:
        assert len(exchange(door, a, 40_000 * b"PING\r\n", a)) == 240_000
        assert door.hub.connection_stats(a.cid)["outbox_room"] <= 4096


def test_nobody_waits_twice_for_a_client_that_takes_nothing() -> None:
    door = Recorder(max_pending=10_000_000)
    operation = b"PUB x %d\r\n%s\r\n" % (LARGE, LARGE * b"y")
    with Wire(door) as a, Wire(door) as stuck:
        door.hub.subscribe(stuck.cid, b"x", b"", b"1")
        a.socket.setblocking(False)
        stalls, was_stalled, rest = 0, False, b""
        while stuck.cid in door.hub.connections():
            rest = rest or operation
            with contextlib.suppress(BlockingIOError):
                rest = rest[a.socket.send(rest) :]
            door.hub.poll()
            stalls += door.hub.is_stalled(a.cid) and not was_stalled
            was_stalled = door.hub.is_stalled(a.cid)
        assert stalls == 1


def test_a_publisher_waits_longer_for_a_client_that_takes_something() -> None:
    door = Recorder(max_pending=10_000)
    a, slow = door.client(), door.client()
    door.hub.feed(slow, b"SUB x 1\r\n")
    door.on_output = lambda cid: None  # type: ignore[method-assign]
    for _ in range(9):
        door.hub.feed(a, b"PUB x 1000\r\n" + b"y" * 1000 + b"\r\n")
    waited = 0
    while door.hub.is_stalled(a):
        waited += 1
        door.hub.take(slow, 10)
        door.hub.tick()
    assert waited == 5


def test_every_reason_for_which_the_hub_closes_has_a_name_at_the_door() -> None:
    last = _hub.WRITE_DEADLINE
    assert [Closed(reason).text for reason in range(1, last + 1)]
    with pytest.raises(ValueError, match=str(last + 1)):
        Closed(last + 1)


class Answerer:
    """A sink during whose turn another client's bytes arrive, as a quick client's do."""

    def __init__(self, wire: Wire, data: bytes) -> None:
        self.wire = wire
        self.data = data

    def deliver(self, _batch: Batch) -> None:
        self.wire.socket.send(self.data)


def test_an_answer_that_comes_at_once_is_served_in_the_same_turn() -> None:
    door = Recorder()
    with Wire(door) as a, Wire(door) as b:
        door.interest.add_sink(b"ask", Answerer(b, b"PUB answer 2\r\nok\r\n"))
        door.hub.subscribe(a.cid, b"answer", b"", b"1")
        a.socket.send(b"PUB ask 0\r\n\r\n")
        door.hub.poll()
        a.socket.setblocking(False)
        assert a.socket.recv(100) == b"MSG answer 1 2\r\nok\r\n"


def test_after_looks_in_vain_the_hub_leaves_an_answer_to_the_next_turn() -> None:
    door = Recorder()
    with Wire(door) as a, Wire(door) as b:
        for _ in range(40):
            a.socket.send(b"PUB nobody 0\r\n\r\n")
            door.hub.poll()
        door.interest.add_sink(b"ask", Answerer(b, b"PUB answer 2\r\nok\r\n"))
        door.hub.subscribe(a.cid, b"answer", b"", b"1")
        a.socket.send(b"PUB ask 0\r\n\r\n")
        door.hub.poll()
        a.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            a.socket.recv(100)
        door.hub.poll()
        assert a.socket.recv(100) == b"MSG answer 1 2\r\nok\r\n"
