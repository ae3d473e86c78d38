"""A connection's turn is bounded: what is left over waits, and others are served meanwhile."""

import select
import socket

from hub_recorder import Collector, Recorder

TURNS = 1000  # more than any of these needs


def connected(door: Recorder) -> tuple[socket.socket, int]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    return ours, door.hub.attach(theirs.detach(), door.interest)


def polled(door: Recorder) -> int:
    """Take turns until the hub has nothing left to do, and return how many there were."""
    for turn in range(TURNS):
        if not select.select([door.hub.fd], [], [], 0)[0]:
            return turn
        door.hub.poll()
    raise AssertionError("the hub does not come to rest")


def told(door: Recorder, what: str) -> int:
    return sum(call[0] == what for call in door.calls)


def test_each_turn_carries_out_one_operation_where_the_slice_is_as_short_as_can_be() -> None:
    door = Recorder(slice_ns=0)
    cid = door.client()
    door.hub.feed(cid, b"CONNECT {}\r\n" * 5)
    counted = [told(door, "connect")]
    while door.hub.is_stalled(cid):
        door.hub.poll()
        counted.append(told(door, "connect"))
    assert counted == [1, 2, 3, 4, 5]
    assert polled(door) <= 1


def test_a_long_slice_takes_all_at_once() -> None:
    door = Recorder()
    cid = door.client()
    door.hub.feed(cid, b"CONNECT {}\r\n" * 500)
    assert told(door, "connect") == 500
    assert not door.hub.is_stalled(cid)


def test_a_bystander_is_answered_before_a_flood_is_worked_off() -> None:
    for flood in (b"CONNECT {}\r\n", b"SUB a 1\r\nUNSUB 1\r\n", b"PONG\r\n", b"INFO {}\r\n"):
        door = Recorder(slice_ns=0)
        (flooding, _), (bystanding, _) = connected(door), connected(door)
        flooding.sendall(flood * 50)
        bystanding.sendall(b"PING\r\n")
        door.hub.poll()
        assert bystanding.recv(100) == b"PONG\r\n"
        calls = len(door.calls)
        assert calls <= 3, flood
        polled(door)
        assert len(door.calls) >= 50, flood
        flooding.close()
        bystanding.close()


def test_one_turn_goes_on_with_a_few_connections_only_and_with_all_in_the_end() -> None:
    door = Recorder(slice_ns=0)
    clients = [door.client() for _ in range(10)]
    for cid in clients:
        door.hub.feed(cid, b"CONNECT {}\r\n" * 4)
    assert told(door, "connect") == 10
    door.hub.poll()
    assert told(door, "connect") == 12
    polled(door)
    assert [sum(call[:2] == ("connect", cid) for call in door.calls) for cid in clients] == [4] * 10


def test_messages_for_a_costly_sink_come_in_small_batches() -> None:
    door = Recorder()
    sink, plain = Collector(), Collector()
    door.interest.add_sink(b"api.>", sink, costly=True)
    door.interest.add_sink(b"log.>", plain)
    cid = door.client()
    door.hub.feed(cid, b"PUB log.x 2\r\nhi\r\n" * 100 + b"PUB api.x 2\r\nhi\r\n" * 100)
    polled(door)
    assert [len(batch) for batch in plain.batches] == [100]
    assert [len(batch) for batch in sink.batches] == [32, 32, 32, 4]


def test_copies_to_many_end_a_turn_too() -> None:
    door = Recorder(slice_ns=0)
    listeners = [door.client() for _ in range(50)]
    for cid in listeners:
        door.hub.feed(cid, b"SUB a 1\r\n")
    cid = door.client()
    door.hub.feed(cid, b"PUB a 2\r\nhi\r\n" * 1000)
    at_first = door.hub.stats()["out_msgs"]
    assert 4096 < at_first < 50 * 1000
    polled(door)
    assert door.hub.stats()["out_msgs"] == 50 * 1000


def test_what_is_carried_out_in_pieces_comes_to_the_same() -> None:
    script = b"".join(
        b"SUB a.%d %d\r\nPUB a.%d 3\r\nabc\r\nPING\r\nUNSUB %d\r\nPUB a.%d 1\r\nx\r\n" % ((i,) * 5)
        for i in range(40)
    )
    outputs = []
    for slice_ns in (0, 1 << 60):
        door = Recorder(slice_ns=slice_ns)
        cid = door.client()
        for start in range(0, len(script), 37):
            door.hub.feed(cid, script[start : start + 37])
        polled(door)
        outputs.append((door.sent(cid), door.calls))
    assert outputs[0][0].count(b"MSG") == 40
    assert outputs[0][0] == outputs[1][0]
    assert [call[0] for call in outputs[0][1]] == [call[0] for call in outputs[1][1]]


def test_a_client_that_goes_while_it_waits_is_forgotten_whole() -> None:
    door = Recorder(slice_ns=0)
    cid = door.client()
    door.hub.feed(cid, b"CONNECT {}\r\n" * 9)
    door.hub.close_connection(cid, 100)
    polled(door)
    assert told(door, "connect") == 1
    assert door.hub.connections() == []


def test_what_a_client_sent_before_it_hung_up_is_still_carried_out() -> None:
    door = Recorder(slice_ns=0)
    ours, _ = connected(door)
    ours.sendall(b"CONNECT {}\r\n" * 9)
    ours.close()
    polled(door)
    assert told(door, "connect") == 9
    assert told(door, "closed") == 1
