import pytest

from millstream.kernel.remote_interest import RemoteInterest


def test_routes_are_found_by_account_and_subject() -> None:
    remote = RemoteInterest()
    remote.apply(1, b"A", b"x.*")
    remote.apply(1, b"A", b"x.y")
    remote.apply(2, b"A", b">")
    remote.apply(3, b"B", b"x.y")
    routes, groups = remote.match_remote(b"A", b"x.y")
    assert (sorted(routes), groups) == ([1, 2], {})
    assert remote.match_remote(b"C", b"x.y") == ([], {})
    assert remote.has_remote_interest(b"B", b"x.y")
    assert not remote.has_remote_interest(b"B", b"x.z")


def test_a_queue_names_each_route_as_often_as_it_weighs() -> None:
    remote = RemoteInterest()
    remote.apply(1, b"A", b"x", b"q", 2)
    remote.apply(2, b"A", b"*", b"q", 1)
    assert sorted(remote.match_remote(b"A", b"x")[1][b"q"]) == [1, 1, 2]
    remote.apply(1, b"A", b"x", b"q", 1)
    assert sorted(remote.match_remote(b"A", b"x")[1][b"q"]) == [1, 2]
    assert len(remote) == 2


def test_a_lost_route_and_a_left_account_leave_nothing() -> None:
    remote = RemoteInterest()
    for route in (1, 2):
        for account in (b"A", b"B"):
            remote.apply(route, account, b"x")
            remote.apply(route, account, b"x", b"q")
    assert remote.drop_account(1, b"A") == 2
    assert remote.match_remote(b"A", b"x") == ([2], {b"q": [2]})
    assert remote.match_remote(b"B", b"x")[0] in ([1, 2], [2, 1])
    assert remote.drop_route(2) == 4
    assert remote.drop_route(1) == 2
    assert len(remote) == 0
    assert not remote.has_remote_interest(b"B", b"x")


def test_every_change_moves_the_generation() -> None:
    remote = RemoteInterest()
    seen = [remote.generation]
    remote.apply(1, b"A", b"x", b"q", 1)
    seen.append(remote.generation)
    remote.apply(1, b"A", b"x", b"q", 2)
    seen.append(remote.generation)
    assert remote.remove(1, b"A", b"x", b"q")
    seen.append(remote.generation)
    assert not remote.remove(1, b"A", b"x", b"q")
    assert seen == sorted(set(seen))
    assert remote.generation == seen[-1]


def test_an_illegal_subject_or_weight_leaves_no_trace() -> None:
    remote = RemoteInterest()
    with pytest.raises(ValueError, match="not a subject"):
        remote.apply(1, b"A", b"a..b")
    with pytest.raises(ValueError, match="weight"):
        remote.apply(1, b"A", b"a", b"q", 0)
    assert len(remote) == 0
