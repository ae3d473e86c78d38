"""Users whose JWT anybody may bear come over HTTP with it, and leave when it ends."""

import pytest

from millstream.accounts.api_keys import ApiKeyRing
from millstream.accounts.credentials import Credentials
from millstream.accounts.jwt import Trust
from millstream.clock import ManualClock
from millstream.errors import Forbidden, Unauthorized
from millstream.http.request import Caller, Request
from millstream.http.routes import Route
from millstream.topics.authorize import Authorizer, Users
from support.jwt_makers import Operator

OPERATOR = Operator()
ACCOUNT = OPERATOR.account("main")


async def _never(request: Request) -> object:
    raise AssertionError


READ = Route("GET", "/v0/topics/{topic}", _never, "read", "")  # type: ignore[arg-type]


class Door:
    def __init__(self) -> None:
        trust = Trust([OPERATOR.token])
        trust.add_account(ACCOUNT.token)
        known = Credentials(trust=trust)
        self.clock = ManualClock()
        users = Users(lambda: known, lambda account, name: None, lambda account: True)
        self.authorize = Authorizer(ApiKeyRing(()), users, self.clock)

    def caller(self, token: str, topic: str = "orders") -> Caller:
        request = Request("GET", f"/v0/topics/{topic}", headers=[
            (b"authorization", b"Bearer " + token.encode())
        ], params={"topic": topic}, peer="127.0.0.1")  # fmt: skip
        self.authorize(request, READ)
        return request.caller


def test_a_bearer_is_let_in_with_its_account_and_permissions() -> None:
    door = Door()
    bearer = ACCOUNT.user("alice", bearer_token=True, sub={"allow": ["orders"]})
    caller = door.caller(bearer.token)
    assert caller.account == ACCOUNT.public
    with pytest.raises(Forbidden):
        door.caller(bearer.token, "prices")


def test_one_that_would_have_to_sign_is_not() -> None:
    door = Door()
    with pytest.raises(Unauthorized):
        door.caller(ACCOUNT.user("bob").token)
    with pytest.raises(Unauthorized):
        door.caller("no.jwt.atall")
    stranger = Operator().account("main").user("eve", bearer_token=True)
    with pytest.raises(Unauthorized):
        door.caller(stranger.token)


def test_what_a_bearer_opened_ends_with_its_jwt() -> None:
    door = Door()
    door.authorize.renew()  # the first look ends what was opened by nobody in particular
    ends = door.clock.time_ns() // 1_000_000_000 + 60
    caller = door.caller(ACCOUNT.user("alice", exp=ends, bearer_token=True).token)
    assert not door.authorize.renew()
    assert not caller.revoked
    door.clock.advance(61)
    assert door.authorize.renew()
    assert caller.revoked
