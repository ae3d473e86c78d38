"""What a worker was sent is acknowledged before it asks for more."""

import os
import pickle
import socket
from collections.abc import Iterator

import pytest

from millstream.spark.worker_socket import Prompt, acknowledge

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "TCP_QUICKACK"), reason="only Linux can be told to acknowledge at once"
)


@pytest.fixture
def waiting() -> Iterator[socket.socket]:
    """A socket whose system waits with acknowledgements, as where an answer follows at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        java = socket.create_connection(listener.getsockname())
        worker, _ = listener.accept()
    with java, worker:
        # An answer within 40 ms would do the same, but not where this process is paused meanwhile.
        worker.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        java.sendall(b"a task")
        assert not at_once(worker)
        yield worker


def at_once(one: socket.socket) -> int:
    return one.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)


def test_what_came_is_acknowledged_and_nothing_is_closed(waiting: socket.socket) -> None:
    before = os.listdir("/proc/self/fd")
    acknowledge()
    assert at_once(waiting)
    assert os.listdir("/proc/self/fd") == before


class Reader(Prompt):
    def __init__(self) -> None:
        self.columns = ("seq",)


def test_a_reader_that_arrives_in_a_task_acknowledges(waiting: socket.socket) -> None:
    arrived = pickle.loads(pickle.dumps(Reader()))
    assert (arrived.columns, at_once(waiting)) == (("seq",), 1)
