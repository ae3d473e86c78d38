"""What each link is told of who wants what."""

from dataclasses import dataclass, field

import pytest

from millstream.accounts.permissions import Rule
from millstream.links.announcements import Announcements
from millstream.links.demand import HERE, AccountDemand, LinkKind, Wish
from millstream.links.narrowing import intersection, narrowed


@dataclass
class Told:
    cid: int
    kind: LinkKind
    cluster: bytes = b""
    isolated: bool = False
    counts: dict[Wish, int] = field(default_factory=dict)

    def tell(self, account: str, wish: Wish, count: int) -> None:
        self.counts[wish] = count


def joined(demand: AccountDemand, *links: Told) -> None:
    for link in links:
        link.counts.update(demand.join(link))


def test_a_link_that_comes_hears_of_what_is_wanted_already() -> None:
    demand, route = AccountDemand("A"), Told(1, LinkKind.ROUTE)
    demand.change(HERE, (b"x", b""), 1)
    demand.change(HERE, (b"x", b"q"), 2)
    joined(demand, route)
    assert route.counts == {(b"x", b""): 1, (b"x", b"q"): 2}


def test_nobody_passes_on_what_a_route_said_but_to_leafs() -> None:
    demand = AccountDemand("A")
    one, other = Told(1, LinkKind.ROUTE), Told(2, LinkKind.ROUTE)
    hub, leaf = Told(3, LinkKind.SPOKE), Told(4, LinkKind.HUB)
    joined(demand, one, other, hub, leaf)
    demand.set(1, (b"x", b""), 1)
    assert [link.counts.get((b"x", b""), 0) for link in (one, other, hub, leaf)] == [0, 0, 0, 1]


def test_everybody_hears_of_what_a_leaf_wants_but_the_leaf() -> None:
    demand = AccountDemand("A")
    route, hub = Told(1, LinkKind.ROUTE), Told(2, LinkKind.SPOKE)
    leaf, other, same = (
        Told(3, LinkKind.HUB, b"L"), Told(4, LinkKind.HUB, b"M"), Told(5, LinkKind.HUB, b"L"),
    )  # fmt: skip
    isolated = Told(6, LinkKind.HUB, b"N", isolated=True)
    joined(demand, route, hub, leaf, other, same, isolated)
    demand.set(3, (b"x", b"q"), 4)
    told = [link.counts.get((b"x", b"q"), 0) for link in (route, hub, leaf, other, same, isolated)]
    assert told == [4, 4, 0, 4, 0, 0]
    demand.leave(3)
    assert [link.counts[b"x", b"q"] for link in (route, hub, other)] == [0, 0, 0]


def test_our_hub_hears_of_marks_for_loops_wherever_they_come_from() -> None:
    demand = AccountDemand("A")
    route, hub = Told(1, LinkKind.ROUTE), Told(2, LinkKind.SPOKE)
    joined(demand, route, hub)
    demand.set(1, (b"$LDS.x", b""), 1)
    assert hub.counts == {(b"$LDS.x", b""): 1}


def test_the_api_of_a_server_is_for_its_own_clients() -> None:
    demand, route = AccountDemand("A"), Told(1, LinkKind.ROUTE)
    system = AccountDemand("$SYS", is_system=True)
    joined(demand, route)
    for subject in (b"$JS.API.INFO", b"$SYS.REQ.USER.INFO", b"$MILLSTREAM.API.READ.*"):
        demand.change(HERE, (subject, b""), 1)
    assert route.counts == {}
    joined(system, route)
    system.change(HERE, (b"$SYS.REQ.SERVER.PING", b""), 1)
    assert route.counts == {(b"$SYS.REQ.SERVER.PING", b""): 1}


def test_plain_interest_is_told_when_it_begins_and_ends_and_each_weight_of_a_group() -> None:
    told = Announcements(LinkKind.ROUTE)
    lines = [told.news("A", (b"x", b""), count, Rule()) for count in (1, 2, 2, 1, 0)]
    assert lines == [b"RS+ A x\r\n", b"", b"", b"", b"RS- A x\r\n"]
    lines = [told.news("A", (b"x", b"q"), count, Rule()) for count in (1, 2, 2, 0)]
    assert lines == [b"RS+ A x q 1\r\n", b"RS+ A x q 2\r\n", b"", b"RS- A x q\r\n"]


def test_what_may_not_come_in_is_not_asked_for() -> None:
    told = Announcements(LinkKind.SPOKE)
    rule = Rule.of(None, ["secret.>"])
    assert told.news("A", (b"secret.x", b""), 1, rule) == b""
    assert told.news("A", (b">", b""), 1, rule) == b"LS+ >\r\n"
    assert told.news("A", (b"$LDS.a", b""), 1, Rule.of([])) == b"LS+ $LDS.a\r\n"


@pytest.mark.parametrize(
    ("a", "b", "both"),
    [
        ("a.b", "a.b", "a.b"),
        ("a.*", "a.b", "a.b"),
        (">", "a.*", "a.*"),
        ("a.>", "*.b.>", "a.b.>"),
        ("a.*.c", "*.b.*", "a.b.c"),
        ("a", "b", None),
        ("a.>", "a", None),
        ("a.b", "a", None),
        ("*", "a.b", None),
    ],
)
def test_two_patterns_have_in_common_what_both_match(a: str, b: str, both: str | None) -> None:
    assert intersection(a, b) == both
    assert intersection(b, a) == both


def test_a_wide_wish_is_narrowed_to_what_is_allowed() -> None:
    rule = Rule.of(["a.*", "b"])
    assert narrowed(">", rule) == ["a.*", "b"]
    assert narrowed("a.x", rule) == ["a.x"]
    assert narrowed("c", rule) == []
