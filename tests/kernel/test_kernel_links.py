"""Links in the kernel: what other servers want is matched beside what clients want."""

from collections import Counter
from typing import Any

import pytest
from hub_recorder import Recorder

from millstream.kernel._interest import Interest

TO_HUB, TO_LEAF, ROUTE = 1, 2, 3
ROOM = 1 << 20


class LinkRecorder(Recorder):
    """A handler whose links want what they say they want, in the account that they name."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.spaces: dict[bytes, Interest] = {b"": self.interest, b"A": self.interest}
        self.deaf: set[int] = set()

    def link(self, kind: int, cluster: bytes = b"", **options: Any) -> int:
        cid = self.client()
        self.hub.wishes.link(cid, kind, ROOM, cluster)
        interest = None if kind == ROUTE else self.interest
        self.hub.wishes.open_link(cid, **{"headers": True, "interest": interest, **options})
        return cid

    def on_wish(
        self, cid: int, account: bytes, subject: bytes, queue: bytes, weight: int, origin: bytes
    ) -> None:
        space = self.spaces.get(account)
        if space is None:
            return
        if weight:
            self.hub.wishes.wish(cid, account, space, subject, queue, weight, (), origin)
        else:
            self.hub.wishes.unwish(cid, account, subject, queue)

    def on_output(self, cid: int) -> None:
        if cid not in self.deaf:
            super().on_output(cid)

    def on_err(self, cid: int, text: bytes) -> None:
        self.calls.append(("err", cid, text))

    def space_of(self, cid: int, account: bytes) -> Interest | None:
        return self.spaces.get(account)

    def say(self, cid: int, text: bytes) -> None:
        self.hub.feed(cid, text)


@pytest.fixture
def door() -> LinkRecorder:
    return LinkRecorder()


def test_a_message_goes_to_a_link_once_whatever_it_matches(door: LinkRecorder) -> None:
    route, leaf, client = door.link(ROUTE), door.link(TO_LEAF), door.client()
    door.say(route, b"RS+ A x.*\r\nRS+ A x.y\r\nRS+ A >\r\n")
    door.say(leaf, b"LS+ x.y\r\nLS+ *.y\r\n")
    door.say(client, b"PUB x.y 2\r\nhi\r\nPUB x.y re 2\r\nho\r\n")
    assert door.sent(route) == b"RMSG A x.y 2\r\nhi\r\nRMSG A x.y re 2\r\nho\r\n"
    assert door.sent(leaf) == b"LMSG x.y 2\r\nhi\r\nLMSG x.y re 2\r\nho\r\n"


def test_a_message_with_headers_keeps_them(door: LinkRecorder) -> None:
    route, client = door.link(ROUTE), door.client()
    door.say(route, b"RS+ A x\r\n")
    door.say(client, b"HPUB x 12 14\r\nNATS/1.0\r\n\r\nhi\r\n")
    assert door.sent(route) == b"HMSG A x 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    door.say(client, b"SUB y 1\r\n")
    door.say(route, b"HMSG A y re 12 14\r\nNATS/1.0\r\n\r\nhi\r\n")
    assert door.sent(client) == b"HMSG y 1 re 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"


def test_what_a_route_brings_goes_to_no_route_and_to_leafs_of_ours(door: LinkRecorder) -> None:
    one, other, hub, leaf = (door.link(kind) for kind in (ROUTE, ROUTE, TO_HUB, TO_LEAF))
    client = door.client()
    for route in (one, other):
        door.say(route, b"RS+ A x\r\n")
    for link in (hub, leaf):
        door.say(link, b"LS+ x\r\n")
    door.say(client, b"SUB x 1\r\n")
    door.say(one, b"RMSG A x 2\r\nhi\r\n")
    assert [door.sent(cid) for cid in (one, other, hub)] == [b"", b"", b""]
    assert door.sent(leaf) == b"LMSG x 2\r\nhi\r\n"
    assert door.sent(client) == b"MSG x 1 2\r\nhi\r\n"


def test_what_our_hub_brings_goes_to_no_route(door: LinkRecorder) -> None:
    hub, route, leaf = door.link(TO_HUB), door.link(ROUTE), door.link(TO_LEAF)
    door.say(route, b"RS+ A x\r\n")
    door.say(leaf, b"LS+ x\r\n")
    door.say(hub, b"LS+ x\r\nLMSG x 2\r\nhi\r\n")
    assert [door.sent(route), door.sent(hub)] == [b"", b""]
    assert door.sent(leaf) == b"LMSG x 2\r\nhi\r\n"


def test_a_leaf_cluster_does_not_hear_itself_by_another_way(door: LinkRecorder) -> None:
    one, other, third = (door.link(TO_LEAF, cluster) for cluster in (b"L", b"L", b"M"))
    route = door.link(ROUTE, tells_origin=True)
    for leaf in (one, other, third):
        door.say(leaf, b"LS+ x\r\n")
    door.say(route, b"RS+ A x\r\n")
    door.say(one, b"LMSG x 2\r\nhi\r\n")
    assert [door.sent(one), door.sent(other)] == [b"", b""]
    assert door.sent(third) == b"LMSG x 2\r\nhi\r\n"
    assert door.sent(route) == b"LMSG L A x 0 2\r\nhi\r\n"
    door.say(route, b"LMSG L A x 0 2\r\nho\r\n")
    assert [door.sent(one), door.sent(other)] == [b"", b""]
    assert door.sent(third) == b"LMSG x 2\r\nho\r\n"


def test_queue_groups_choose_members_on_routes_by_their_weight(door: LinkRecorder) -> None:
    route, client, publisher = door.link(ROUTE), door.client(), door.client()
    door.say(route, b"RS+ A x q 3\r\n")
    door.say(client, b"SUB x q 1\r\n")
    got: Counter[int] = Counter()
    for _ in range(4000):
        door.say(publisher, b"PUB x 2\r\nhi\r\n")
        sent = {cid: door.sent(cid) for cid in (route, client)}
        (who,) = (cid for cid, data in sent.items() if data)
        got[who] += 1
        assert who != route or sent[who] == b"RMSG A x | q 2\r\nhi\r\n"
    assert 2800 < got[route] < 3200


def test_queue_groups_choose_leafs_when_there_is_nobody_else(door: LinkRecorder) -> None:
    leaf, client, publisher = door.link(TO_LEAF), door.client(), door.client()
    door.say(leaf, b"LS+ x q 9\r\n")
    door.say(client, b"SUB x q 1\r\n")
    for _ in range(100):
        door.say(publisher, b"PUB x 2\r\nhi\r\n")
        assert (door.sent(leaf), door.sent(client)) == (b"", b"MSG x 1 2\r\nhi\r\n")
    door.say(client, b"UNSUB 1\r\n")
    door.say(publisher, b"PUB x 2\r\nhi\r\n")
    assert door.sent(leaf) == b"LMSG x | q 2\r\nhi\r\n"


def test_a_routed_message_goes_to_the_groups_that_it_names_and_prefers_us(
    door: LinkRecorder,
) -> None:
    route, other, client = door.link(ROUTE), door.link(ROUTE), door.client()
    door.say(other, b"RS+ A x q 100\r\n")
    door.say(client, b"SUB x q 1\r\nSUB x p 2\r\nSUB x 3\r\n")
    door.say(route, b"RMSG A x + re q z 2\r\nhi\r\nRMSG A x | p 2\r\nho\r\nRMSG A x 1\r\n.\r\n")
    assert sorted(door.sent(client).split(b"\r\n")[::2]) == sorted(
        [b"MSG x 3 re 2", b"MSG x 1 re 2", b"MSG x 3 2", b"MSG x 2 2", b"MSG x 3 1", b""]
    )
    assert door.sent(other) == b""


def test_names_of_groups_stand_behind_the_reply(door: LinkRecorder) -> None:
    route, client = door.link(ROUTE), door.client()
    door.say(route, b"RS+ A x q 1\r\nRS+ A x p 1\r\nRS+ A x\r\n")
    door.say(client, b"PUB x re 2\r\nhi\r\n")
    head, body, end = door.sent(route).split(b"\r\n")
    assert (body, end) == (b"hi", b"")
    words = head.split()
    assert words[:5] == [b"RMSG", b"A", b"x", b"+", b"re"]
    assert (sorted(words[5:7]), words[7:]) == ([b"p", b"q"], [b"2"])


def test_a_delivered_record_carries_its_own_subject_behind_the_ack(door: LinkRecorder) -> None:
    route, client = door.link(ROUTE), door.client()
    door.say(route, b"RS+ A inbox\r\n")
    door.hub.publish(door.interest, b"inbox", b"$JS.ACK.s.c.1", b"", b"hi", b"orders.1")
    door.hub.flush()
    assert door.sent(route) == b"RMSG A inbox $JS.ACK.s.c.1@orders.1 2\r\nhi\r\n"
    door.say(client, b"SUB inbox 1\r\n")
    door.say(route, b"RMSG A inbox $JS.ACK.s.c.1@orders.1 2\r\nhi\r\n")
    assert door.sent(client) == b"MSG orders.1 1 $JS.ACK.s.c.1 2\r\nhi\r\n"


def test_a_requester_hears_that_nobody_answers_only_where_no_link_wants_it(
    door: LinkRecorder,
) -> None:
    route, client = door.link(ROUTE), door.client(no_responders=True)
    door.say(client, b"SUB in 1\r\nPUB x in 0\r\n\r\n")
    assert b"503" in door.sent(client)
    door.say(route, b"RS+ A x\r\n")
    door.say(client, b"PUB x in 0\r\n\r\n")
    assert door.sent(client) == b""
    assert door.sent(route) == b"RMSG A x in 0\r\n\r\n"


def test_interest_of_links_is_found_changed_and_dropped(door: LinkRecorder) -> None:
    one, other = door.link(ROUTE), door.link(ROUTE)
    wishes, interest = door.hub.wishes, door.interest
    door.say(one, b"RS+ A x.*\r\nRS+ A x.y\r\nRS+ A x.y q 2\r\n")
    door.say(other, b"RS+ A x.y q 1\r\nRS+ B x.y\r\n")
    assert wishes.match_remote(interest, b"x.y") == ([one], {b"q": [one, one, other]})
    assert wishes.has_remote_interest(interest, b"x.z")
    assert not wishes.has_remote_interest(interest, b"y")
    seen = [interest.epoch]
    door.say(one, b"RS+ A x.y q 1\r\n")
    seen.append(interest.epoch)
    assert wishes.match_remote(interest, b"x.y")[1] == {b"q": [one, other]}
    door.say(one, b"RS- A x.y q\r\nRS- A none\r\n")
    seen.append(interest.epoch)
    assert seen == sorted(set(seen))
    assert wishes.match_remote(interest, b"x.y")[1] == {b"q": [other]}
    assert (wishes.count(one), wishes.drop_all(one, b"A"), wishes.count(one)) == (2, 2, 0)
    door.hub.close_connection(other, 1)
    assert not wishes.has_remote_interest(interest, b"x.y")


def test_observers_hear_of_clients_and_sinks_but_not_of_links(door: LinkRecorder) -> None:
    route, client = door.link(ROUTE), door.client()
    door.say(client, b"SUB before 1\r\n")
    heard: list[tuple[bytes, bytes, int]] = []
    undo = door.interest.observe(heard.append)
    door.say(route, b"RS+ A x\r\nRS- A x\r\n")
    door.say(client, b"SUB x q 2\r\nUNSUB 1\r\n")
    handle = door.interest.add_sink(b"s.>", door)
    door.hub.close_connection(client, 1)
    door.interest.remove_sink(handle)
    assert heard == [
        (b"before", b"", 1), (b"x", b"q", 1), (b"before", b"", -1), (b"s.>", b"", 1),
        (b"x", b"q", -1), (b"s.>", b"", -1),
    ]  # fmt: skip
    undo()
    door.interest.add_sink(b"t", door)
    assert len(heard) == 6


def test_a_link_that_does_not_read_is_given_up_and_holds_nobody_back(door: LinkRecorder) -> None:
    route, client = door.client(), door.client()
    door.hub.wishes.link(route, ROUTE, 4096)
    door.hub.wishes.open_link(route, headers=True)
    door.deaf.add(route)
    door.say(route, b"RS+ A x\r\n")
    for _ in range(100):
        door.say(client, b"PUB x 100\r\n" + b"x" * 100 + b"\r\n")
        assert not door.hub.is_stalled(client)
    assert ("closed", route, 3) in door.calls


@pytest.mark.parametrize(
    "line",
    [
        b"PUB x 2\r\nhi\r\n",
        b"SUB x 1\r\n",
        b"RMSG A x 2\r\nhiXX",
        b"RMSG A\r\n",
        b"RMSG A x + re 2\r\nhi\r\n",
        b"RMSG A x a b 2\r\nhi\r\n",
        b"RMSG A x -2\r\n",
        b"HMSG A x 4 2\r\nhi\r\n",
        b"RS+ A x q\r\n",
        b"RS+ A x q 0\r\n",
        b"RS+ A x q 1 2 3\r\n",
        b"RS+\r\n",
        b"A+ A\r\n",
        b"\r\n",
        b"\x00" * 70000,
        b"RMSG A x 99999999\r\n",
    ],
)
@pytest.mark.parametrize("step", [0, 1, 3])
def test_what_no_server_says_ends_the_link_and_nothing_else(
    door: LinkRecorder, line: bytes, step: int
) -> None:
    route, client = door.link(ROUTE), door.client()
    for at in range(0, len(line), step or len(line)):
        if route in door.hub.connections():
            door.say(route, line[at : at + (step or len(line))])
    assert route not in door.hub.connections()
    door.say(client, b"SUB a 1\r\nPUB a 2\r\nhi\r\n")
    assert door.sent(client) == b"MSG a 1 2\r\nhi\r\n"


def test_before_it_is_opened_a_link_may_only_introduce_itself(door: LinkRecorder) -> None:
    for line in (b"RS+ A x\r\n", b"RMSG A x 2\r\nhi\r\n", b"HMSG A x 0 2\r\nhi\r\n"):
        cid = door.client()
        door.hub.wishes.link(cid, ROUTE, ROOM)
        door.say(cid, b'CONNECT {"a":1}\r\nINFO {"b":2}\r\nPING\r\n')
        assert door.calls[-2:] == [("connect", cid, b'{"a":1}'), ("info", cid, b'{"b":2}')]
        door.say(cid, line)
        assert cid not in door.hub.connections()


def test_a_message_of_an_account_that_we_do_not_have_is_dropped(door: LinkRecorder) -> None:
    route, client = door.link(ROUTE), door.client()
    door.say(client, b"SUB x 1\r\n")
    door.say(route, b"RMSG B x 2\r\nhi\r\nRMSG A x 2\r\nho\r\n")
    assert door.sent(client) == b"MSG x 1 2\r\nho\r\n"
