import os
import resource
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.client.blocking import PENDING_LIMIT, connect
from millstream.client.errors import (
    AuthenticationFailed,
    ConnectFailed,
    ConnectionLost,
    InvalidSubject,
    NoResponders,
    PayloadTooLarge,
    PermissionDenied,
    RequestTimeout,
    SlowSubscription,
)
from support.nats_server import RunningServer, nats_server


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with nats_server() as running:
        yield running


def test_a_subscriber_gets_what_is_published_with_headers(server: RunningServer) -> None:
    with connect(server.url) as client:
        inbox = client.subscribe("orders.*")
        client.publish("orders.new", b'{"id":1}', {"Kind": ["a", "b"]}, reply="back")
        message = inbox.next(5)
        assert (message.subject, message.payload, message.reply) == (
            "orders.new",
            b'{"id":1}',
            "back",
        )
        assert message.headers == {"Kind": ["a", "b"]}


def test_a_request_returns_the_first_reply(server: RunningServer) -> None:
    def answer_one() -> None:
        with connect(server.url) as client:
            questions = client.subscribe("double")
            client.flush()
            ready.set()
            question = questions.next(5)
            assert question.reply is not None
            client.publish(question.reply, question.payload * 2)

    ready = threading.Event()
    thread = threading.Thread(target=answer_one)
    thread.start()
    assert ready.wait(5)
    with connect(server.url) as client:
        assert client.request("double", b"ab", 5).payload == b"abab"
    thread.join()


def test_a_late_reply_is_not_taken_for_the_next_one(server: RunningServer) -> None:
    with connect(server.url) as client:
        questions = client.subscribe("slow")
        with pytest.raises(RequestTimeout, match="no reply on 'slow' within"):
            client.request("slow", b"first", 0.01)
        late = questions.next(5).reply
        assert late is not None
        client.publish(late, b"late")
        client.subscribe("echo")
        with pytest.raises(RequestTimeout):
            client.request("echo", b"", 0.05)


def test_a_request_that_nobody_hears_fails_at_once(server: RunningServer) -> None:
    with connect(server.url) as client, pytest.raises(NoResponders, match="nobody answers"):
        client.request("nobody", b"", 5)


def test_queue_members_share_the_messages(server: RunningServer) -> None:
    with connect(server.url) as client:
        members = [client.subscribe("jobs", queue="workers") for _ in range(2)]
        for _ in range(50):
            client.publish("jobs", b"")
        client.flush()
        assert sum(len(list(m.messages(timeout=0))) for m in members) == 50


def test_iteration_ends_when_nothing_arrives_in_time(server: RunningServer) -> None:
    with connect(server.url) as client:
        inbox = client.subscribe("three")
        for number in range(3):
            client.publish("three", b"%d" % number)
        client.flush()
        assert [m.payload for m in inbox.messages(timeout=0.2)] == [b"0", b"1", b"2"]


def test_many_megabytes_to_ourselves_do_not_deadlock(server: RunningServer) -> None:
    with connect(server.url) as client:
        inbox = client.subscribe("bulk")
        for _ in range(40):
            client.publish("bulk", bytes(512 * 1024))
        client.flush()
        assert sum(len(m.payload) for m in inbox.messages(timeout=0)) == 40 * 512 * 1024


def test_messages_beyond_the_limit_are_dropped_and_reported(server: RunningServer) -> None:
    assert PENDING_LIMIT == 64 * 1024 * 1024
    with connect(server.url) as client:
        inbox = client.subscribe("flood", pending_limit=100)
        for _ in range(3):
            client.publish("flood", bytes(40))
        client.flush()
        assert len(inbox.next(0).payload) + len(inbox.next(0).payload) == 80
        with pytest.raises(SlowSubscription) as caught:
            inbox.next(0)
        assert caught.value.dropped == 1


def test_unsubscribing_stops_the_messages(server: RunningServer) -> None:
    with connect(server.url) as client:
        inbox = client.subscribe("gone")
        inbox.unsubscribe()
        client.publish("gone", b"")
        client.flush()
        with pytest.raises(RequestTimeout):
            inbox.next(0)


def test_auto_unsubscribe_delivers_the_number_asked_for(server: RunningServer) -> None:
    with connect(server.url) as client:
        inbox = client.subscribe("few")
        inbox.unsubscribe(after=2)
        for _ in range(5):
            client.publish("few", b"")
        client.flush()
        assert len(list(inbox.messages(timeout=0))) == 2


def test_a_message_above_the_servers_limit_is_refused_before_it_is_sent(
    server: RunningServer,
) -> None:
    with connect(server.url) as client:
        with pytest.raises(PayloadTooLarge, match="1048577 bytes is above"):
            client.publish("big", bytes(1024 * 1024 + 1))
        client.flush()


@pytest.mark.parametrize("subject", ["", "a b", "a\r\nPUB b 0", "x" * 5000])
def test_a_subject_cannot_smuggle_in_a_command(server: RunningServer, subject: str) -> None:
    with connect(server.url) as client, pytest.raises(InvalidSubject):
        client.publish(subject, b"")


def test_credentials_in_the_url_open_the_door() -> None:
    with nats_server("--user", "u", "--pass", "p@ss") as server:
        with connect(f"nats://u:p%40ss@127.0.0.1:{server.port}") as client:
            client.flush()
        with pytest.raises(AuthenticationFailed, match="Give them in the url"):
            connect(server.url)
    with nats_server("--auth", "s3cret") as server:
        with connect(f"nats://s3cret@127.0.0.1:{server.port}") as client:
            assert client.info.auth_required
        with pytest.raises(AuthenticationFailed) as caught:
            connect(f"nats://wrong@127.0.0.1:{server.port}")
        assert "wrong" not in str(caught.value)


def test_a_forbidden_publish_is_reported_and_the_connection_stays(tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    user = '{user: u, password: p, permissions: {publish: "open.>"}}'
    config.write_text(f"authorization {{ users: [{user}] }}")
    with (
        nats_server("-c", str(config)) as server,
        connect(f"nats://u:p@127.0.0.1:{server.port}") as client,
    ):
        client.publish("shut.a", b"")
        with pytest.raises(PermissionDenied, match=r"shut\.a"):
            client.flush()
        client.publish("open.a", b"")
        client.flush()


def test_a_refused_connection_names_the_url_and_the_fix() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ConnectFailed) as caught:
        connect(f"nats://127.0.0.1:{port}")
    assert f"nats://127.0.0.1:{port}" in str(caught.value)
    assert "millstream serve" in str(caught.value)


def test_the_second_url_is_tried_when_the_first_is_down(server: RunningServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with connect(f"nats://127.0.0.1:{port},{server.url}") as client:
        assert client.address.port == server.port


def test_something_that_is_not_a_nats_server_is_told_apart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"nats://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ConnectFailed, match="sent no greeting"):
            connect(url, timeout=0.05)

        def talk_http() -> None:
            for _ in range(2):
                peer, _ = listener.accept()
                with peer:
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=talk_http)
        thread.start()
        with pytest.raises(ConnectFailed, match="does not speak NATS"):
            connect(url)
        thread.join()


def test_a_server_that_dies_is_reported_to_the_waiting_call() -> None:
    with nats_server() as server, connect(server.url) as client:
        inbox = client.subscribe("x")
        client.flush()
        server.process.kill()
        with pytest.raises(ConnectionLost, match="closed the connection"):
            inbox.next(5)


def test_a_ping_is_answered_while_waiting_for_messages() -> None:
    received = bytearray()

    def serve_one() -> None:
        peer, _ = listener.accept()
        with peer, peer.makefile("rb") as lines:
            peer.sendall(b"INFO {}\r\n")
            while not received.endswith(b"PONG\r\n"):
                line = lines.readline()
                received.extend(line)
                if line == b"PING\r\n":
                    peer.sendall(b"PONG\r\n")
                if line.startswith(b"SUB"):
                    peer.sendall(b"PING\r\n")
            peer.sendall(b"MSG x 1 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve_one)
        thread.start()
        with connect(f"127.0.0.1:{listener.getsockname()[1]}") as client:
            assert client.subscribe("x").next(5).payload == b""
        thread.join()


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """So many open files that the next one has a number above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1200:
        pytest.skip("this machine grants fewer than 1200 open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    taken = [os.dup(0)]
    while taken[-1] < 1024:
        taken.append(os.dup(0))
    yield
    for each in taken:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_a_server_that_takes_nothing_is_told_also_where_many_files_are_open() -> None:
    tried = threading.Event()

    def serve_one() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.sendall(b"INFO {}\r\n")
            heard = b""
            while not heard.endswith(b"PING\r\n"):
                heard += peer.recv(4096)
            peer.sendall(b"PONG\r\n")
            tried.wait(20)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve_one)
        thread.start()
        with connect(f"127.0.0.1:{listener.getsockname()[1]}") as client:
            client._out += bytes(32 << 20)  # more than two sockets hold
            with pytest.raises(RequestTimeout, match=r"took no data for 0\.2 s"):
                client._send(0.2)
            client._out.clear()
            tried.set()
        thread.join()
