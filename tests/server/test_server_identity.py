from millstream.accounts import account
from millstream.accounts.account import ResponseType
from millstream.accounts.credentials import Presented
from millstream.accounts.permissions import Responses, Rule
from millstream.nats.transport.transport import Kind
from millstream.server.access.identity import Identities, identities_of
from millstream.server.conf.document import from_block
from millstream.server.conf.syntax import parse
from millstream.server.options.options import Options

NOW = 1_000_000_000.0


def known(text: str) -> Identities:
    return identities_of(from_block(parse(text)).options)


def test_without_users_everyone_may_come_in() -> None:
    found = identities_of(Options())
    assert found.credentials.open
    assert [listed.name for listed in found.accounts] == ["$G"]
    assert found.system_account == "$SYS"


def test_a_single_user_is_believed_with_its_password() -> None:
    found = known("authorization { user: a, password: b }").credentials
    assert found.identify(Presented(user="a", password="b"), NOW) is not None
    assert found.identify(Presented(user="a", password="c"), NOW) is None
    assert found.required


def test_a_token_is_believed() -> None:
    found = known("authorization { token: t }").credentials
    assert found.identify(Presented(token="t"), NOW) is not None
    assert found.identify(Presented(token="u"), NOW) is None


def test_an_empty_list_of_users_keeps_everyone_out() -> None:
    found = known("authorization { users: [] }").credentials
    assert found.required
    assert found.identify(Presented(user="a"), NOW) is None


def test_users_belong_to_their_accounts_and_carry_their_permissions() -> None:
    found = known(
        """
        no_auth_user: guest
        accounts {
          A { users: [
            { user: a, pass: b, permissions {
                publish: "x.>", subscribe { deny: "y q" }, allow_responses { max: 2 } } }
            { user: guest } ] }
        }"""
    ).credentials
    identity = found.identify(Presented(user="a", password="b"), NOW)
    assert identity is not None
    assert identity.account == "A"
    assert identity.permissions.publish == Rule.of(["x.>"])
    assert identity.permissions.subscribe == Rule.of(None, ["y q"], queues=True)
    assert identity.permissions.responses == Responses(2, 120.0)
    guest = found.identify(Presented(), NOW)
    assert guest is not None
    assert guest.name == "guest"


def test_accounts_keep_what_they_share_and_may_use() -> None:
    everyone, a, b = known(
        """
        mappings { old: new }
        accounts {
          A { exports: [ { service: s, response_type: chunked, threshold: "3s" } ]
              limits { max_conn: 2, max_subs: 3, max_payload: 4 }, jetstream: enabled }
          B { imports: [ { service { account: A, subject: s }, to: t } ] }
        }"""
    ).accounts
    assert everyone.mappings == (account.Mapping("old", (account.Destination("new"),)),)
    assert a.exports == (
        account.Export("s", service=True, response_type=ResponseType.CHUNKED, response_seconds=3.0),
    )
    assert a.limits == account.AccountLimits(2, 3, 4)
    assert a.jetstream
    assert b.imports == (account.Import("A", "s", service=True, to="t"),)
    assert not b.jetstream


def test_a_mapping_for_our_cluster_goes_before_the_one_for_all() -> None:
    text = "mappings { a: [{dest: b, weight: 100}, {dest: c, weight: 100, cluster: X}] }"
    [everyone] = known(text).accounts
    assert everyone.mappings == (account.Mapping("a", (account.Destination("b"),)),)
    [everyone] = known(text + "\ncluster { name: X }").accounts
    assert everyone.mappings == (account.Mapping("a", (account.Destination("c"),)),)


def test_a_websocket_may_believe_others() -> None:
    found = known("websocket { port: 1, no_tls: true, authorization { token: w } }")
    assert found.credentials.open
    assert found.by_kind[Kind.WEBSOCKET].required
    assert known("websocket { port: 1, no_tls: true }").by_kind == {}


def test_the_system_account_can_be_named_or_left_out() -> None:
    assert known("system_account: S\naccounts { S {} }").system_account == "S"
    assert known("no_system_account: true").system_account == ""
