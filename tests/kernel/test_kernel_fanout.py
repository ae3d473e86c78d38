"""Fanout: sent together or one by one, a socket takes what a plain write would put there."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.kernel._fanout import Fanout
from millstream.kernel.reference import fanout as reference

Send = Callable[[list[int], bytes], list[tuple[int, int]]]

TOGETHER, ONE_BY_ONE = Fanout(), Fanout(together=False)
STATES = ["clear", "half", "full", "gone"]


@contextmanager
def clients(states: list[str]) -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    """Pairs of sockets: ours, and the client's, which has taken more or less of what came."""
    with ExitStack() as stack:
        made = []
        for state in states:
            ours, theirs = socket.socketpair()
            stack.enter_context(ours)
            stack.enter_context(theirs)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            ours.setblocking(False)
            theirs.setblocking(False)
            if state == "full":
                _fill(ours)
            elif state == "half":
                _fill(ours)
                theirs.recv(1)  # frees the room of one piece
            elif state == "gone":
                theirs.close()
            made.append((ours, theirs))
        yield made


def _fill(sock: socket.socket) -> None:
    try:
        while True:
            sock.send(b"." * 700)
    except BlockingIOError:
        return


def outcome(
    send: Send, states: list[str], data: bytes
) -> tuple[list[tuple[int, int]], list[bytes]]:
    """Return what a send says, and what the clients have heard then."""
    with clients(states) as pairs:
        said = send([ours.fileno() for ours, _ in pairs], data)
        return said, [_heard(theirs) for _, theirs in pairs]


def _heard(sock: socket.socket) -> bytes:
    heard = b""
    try:
        while sock.fileno() >= 0 and (more := sock.recv(65536)):
            heard += more
    except BlockingIOError:
        pass
    return heard


@pytest.mark.parametrize("fanout", [TOGETHER, ONE_BY_ONE], ids=["together", "one by one"])
@given(
    states=st.lists(st.sampled_from(STATES), max_size=8), size=st.sampled_from([0, 1, 9, 60_000])
)
def test_compiled_fanout_agrees_with_the_reference(
    fanout: Fanout, states: list[str], size: int
) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    assert outcome(fanout.send, states, data[:size]) == outcome(reference.send, states, data[:size])


def test_the_system_takes_many_at_once() -> None:
    assert TOGETHER.together
    assert not ONE_BY_ONE.together


@pytest.mark.parametrize("count", [127, 128, 129, 300])
def test_more_than_the_system_takes_at_once_all_get_it(count: int) -> None:
    assert outcome(TOGETHER.send, ["clear"] * count, b"piece") == ([], [b"piece"] * count)


def test_who_stands_behind_a_closed_socket_gets_it_all_the_same() -> None:
    with clients(["clear"] * 4) as pairs:
        fds = [ours.fileno() for ours, _ in pairs]
        pairs[1][0].close()
        assert TOGETHER.send(fds, b"piece") == [(1, 0)]
        assert [_heard(theirs) for _, theirs in pairs] == [b"piece", b"", b"piece", b"piece"]


def test_two_threads_do_not_take_each_others_answers() -> None:
    wrong: list[object] = []

    def work(states: list[str]) -> None:
        with clients(states) as pairs:
            fds = [ours.fileno() for ours, _ in pairs]
            expected = [(at, 0) for at, state in enumerate(states) if state == "full"]
            for _ in range(200):
                if (said := TOGETHER.send(fds, b"piece")) != expected:
                    wrong.append(said)
                for _, theirs in pairs[len(expected) :]:
                    _heard(theirs)

    threads = [
        threading.Thread(target=work, args=(["full"] * full + ["clear"] * (20 - full),))
        for full in (0, 20)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []
