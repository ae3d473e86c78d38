"""What an observer sees of the hub's connections: subscriptions, activity, ports, endings."""

import socket
from collections.abc import Callable, Iterator

import pytest

from millstream.kernel._hub import Hub
from millstream.kernel._interest import Interest
from millstream.kernel._phrases import Phrases

opened: list[Hub] = []


@pytest.fixture(autouse=True)
def close_hubs() -> Iterator[None]:
    yield
    while opened:
        opened.pop().close()


class Recorder:
    """A hub and a handler that carries out SUB and UNSUB."""

    def __init__(self, on_closing: Callable[[int, int], None] | None = None) -> None:
        self.hub = Hub(self, Phrases(), on_closing=on_closing, slice_ns=1 << 60)
        self.interest = Interest()
        opened.append(self.hub)

    def client(self) -> int:
        return self.hub.attach_fed(self.interest)

    def on_connect(self, cid: int, options: bytes) -> None: ...

    def on_sub(self, cid: int, subject: bytes, queue: bytes, sid: bytes) -> None:
        self.hub.subscribe(cid, subject, queue, sid)

    def on_unsub(self, cid: int, sid: bytes, max_msgs: int) -> None:
        self.hub.unsubscribe(cid, sid, max_msgs)

    def on_ping(self, cid: int) -> None: ...

    def on_pong(self, cid: int) -> None: ...

    def on_info(self, cid: int, info: bytes) -> None: ...

    def on_error(self, cid: int, code: int) -> None: ...

    def on_closed(self, cid: int, reason: int) -> None: ...

    def on_output(self, cid: int) -> None: ...

    def may_publish(self, cid: int, subject: bytes) -> int:
        return 1


def test_a_connections_subscriptions_are_listed_as_they_were_asked_for() -> None:
    recorder = Recorder()
    cid = recorder.client()
    recorder.hub.feed(cid, b"SUB a.*.c 1\r\nSUB b.> workers 2\r\nSUB plain 3\r\nUNSUB 3 5\r\n")
    recorder.hub.feed(cid, b"PUB plain 2\r\nhi\r\n")
    assert sorted(recorder.hub.subscriptions(cid)) == [
        (b"a.*.c", b"", b"1", 0, 0),
        (b"b.>", b"workers", b"2", 0, 0),
        (b"plain", b"", b"3", 1, 5),
    ]
    assert len(recorder.hub.subscriptions(cid, 2)) == 2
    assert recorder.hub.subscriptions(cid, 0) == []


def test_an_observer_sees_a_closing_connection_whole_and_once() -> None:
    seen: list[tuple[int, int, int, int]] = []

    def look(cid: int, reason: int) -> None:
        stats = recorder.hub.connection_stats(cid)
        seen.append((cid, reason, stats["in_msgs"], len(recorder.hub.subscriptions(cid))))

    recorder = Recorder(look)
    cid = recorder.client()
    recorder.hub.feed(cid, b"SUB a 1\r\nPUB a 2\r\nhi\r\n")
    recorder.hub.close_connection(cid, 100)
    recorder.hub.close_connection(cid, 100)
    assert seen == [(cid, 100, 1, 1)]


def test_activity_is_stamped_with_the_hubs_time() -> None:
    recorder = Recorder()
    cid = recorder.client()
    recorder.hub.now_ns = 7
    recorder.hub.feed(cid, b"PING\r\n")
    recorder.hub.now_ns = 9
    recorder.hub.feed(cid, b"PI")
    assert recorder.hub.connection_stats(cid)["last_ns"] == 7


def test_a_connection_knows_the_clients_port_and_when_it_came() -> None:
    recorder = Recorder()
    recorder.hub.now_ns = 5
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as client,
    ):
        accepted, _ = listening.accept()
        accepted.setblocking(False)
        cid = recorder.hub.attach(accepted.detach(), recorder.interest)
        stats = recorder.hub.connection_stats(cid)
        assert (stats["port"], stats["start_ns"]) == (client.getsockname()[1], 5)
    assert recorder.hub.connection_stats(recorder.client())["port"] == 0
