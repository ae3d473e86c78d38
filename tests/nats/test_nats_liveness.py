"""When a client is asked for its CONNECT, for a sign of life and for its distance."""

import math

from millstream.nats.liveness import Due, Liveness


def made(measure: float = math.inf) -> Liveness:
    return Liveness(100.0, 7, handshake=5.0, longest=20.0, ping=60.0, measure=measure)


def test_the_handshake_is_due_until_the_client_is_proven() -> None:
    liveness = made()
    assert liveness.due(104.9, 60.0, connected=False) is Due.NOTHING
    assert liveness.due(105.0, 60.0, connected=False) is Due.HANDSHAKE
    assert liveness.due(106.0, 60.0, connected=False) is Due.HANDSHAKE
    liveness.proven()
    assert liveness.due(107.0, 60.0, connected=False) is Due.NOTHING


def test_a_connect_on_its_way_has_longer_but_not_for_ever() -> None:
    liveness = made()
    assert not liveness.is_late(119.9)
    assert liveness.is_late(120.0)


def test_pings_come_one_interval_after_the_other() -> None:
    liveness = made()
    liveness.proven()
    assert liveness.due(160.0, 30.0, connected=True) is Due.PING
    assert liveness.due(161.0, 30.0, connected=True) is Due.NOTHING
    assert liveness.next_at == 190.0
    assert liveness.due(190.0, 30.0, connected=True) is Due.PING


def test_the_distance_is_measured_once_and_only_of_who_has_connected() -> None:
    liveness = made(measure=1.0)
    liveness.proven()
    assert liveness.due(102.0, 60.0, connected=False) is Due.NOTHING
    assert liveness.next_at == 101.0  # looked at again, as it may have connected by then
    assert liveness.due(103.0, 60.0, connected=True) is Due.MEASURE
    assert liveness.due(104.0, 60.0, connected=True) is Due.NOTHING
    assert liveness.next_at == 160.0


def test_a_client_is_stale_when_as_many_pings_as_allowed_had_no_answer() -> None:
    liveness = made()
    assert [liveness.is_stale(2) for _ in range(3)] == [False, False, True]
    liveness.heard()
    assert not liveness.is_stale(2)


def test_the_distance_is_what_the_last_answer_took() -> None:
    liveness = made()
    liveness.greeted(100.5)
    assert liveness.rtt == 0.5
    liveness.pinged(160.0)
    liveness.ponged(160.25)
    assert liveness.rtt == 0.25
    liveness.ponged(170.0)  # nobody asked
    assert liveness.rtt == 0.25
