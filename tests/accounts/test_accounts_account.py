import base64
import json
from typing import Any

import nkeys as signing
import pytest

from millstream.accounts.account import (
    Account,
    Export,
    Import,
    ResponseType,
    accounts_with_defaults,
    goes_round,
)
from millstream.accounts.claims import account_of_claims, accounts_of_claims
from millstream.accounts.jwt import JwtClaims


@pytest.mark.parametrize(
    ("item", "local", "owners", "ours"),
    [
        (Import("A", "s.>"), "s.>", "s.x", "s.x"),
        (Import("A", "s.>", prefix="imp"), "imp.s.>", "s.x", "imp.s.x"),
        (Import("A", "s.>", prefix="imp."), "imp.s.>", "s.x", "imp.s.x"),
        (Import("A", "s.x", to="renamed"), "renamed", "s.x", "renamed"),
        (Import("A", "s.*.*", to="t.$2.$1"), "t.*.*", "s.1.2", "t.2.1"),
        (Import("A", "s.*.>", to="t.*.>"), "t.*.>", "s.1.2.3", "t.1.2.3"),
    ],
)
def test_a_stream_gets_the_importers_name(item: Import, local: str, owners: str, ours: str) -> None:
    rename = item.inward()

    assert item.local == local
    assert (rename.apply(owners) if rename else owners) == ours


@pytest.mark.parametrize(
    ("item", "local", "ours", "owners"),
    [
        (Import("A", "svc", True), "svc", "svc", "svc"),
        (Import("A", "svc", True, to="ask"), "ask", "ask", "svc"),
        (Import("A", "req.*.*", True, to="my.$2.$1"), "my.*.*", "my.x.y", "req.y.x"),
        (Import("A", "req.*.>", True, to="my.*.>"), "my.*.>", "my.x.y.z", "req.x.y.z"),
    ],
)
def test_a_request_goes_out_under_the_owners_name(
    item: Import, local: str, ours: str, owners: str
) -> None:
    rename = item.outward()

    assert item.local == local
    assert (rename.apply(ours) if rename else ours) == owners


def test_an_offer_is_found_for_those_it_is_made_to() -> None:
    account = Account(
        "A",
        exports=(
            Export("s.>"),
            Export("s.priv.>", accounts=("B",)),
            Export("acc.*.info", True, account_token_position=2),
        ),
    )

    assert account.offer(Import("A", "s.x"), "C") == Export("s.>")
    assert account.offer(Import("A", "s.priv.>"), "B") == Export("s.priv.>", accounts=("B",))
    assert account.offer(Import("A", "s.priv.>"), "C") is None
    assert account.offer(Import("A", "other"), "B") is None
    assert account.offer(Import("A", "s.x", True), "B") is None
    assert account.offer(Import("A", "acc.B.info", True), "B") is not None
    assert account.offer(Import("A", "acc.C.info", True), "B") is None


def test_imports_that_lead_back_are_seen() -> None:
    def account(name: str, *imports: Import) -> Account:
        return Account(name, imports=imports)

    ring = {
        "A": account("A", Import("B", "x", True)),
        "B": account("B", Import("C", "y", True, to="x")),
        "C": account("C", Import("A", "x", True, to="y")),
        "D": account("D", Import("A", "x", True), Import("A", "z", True)),
    }

    assert goes_round(ring["A"].imports[0], "A", ring)
    assert not goes_round(ring["D"].imports[1], "D", ring)


def test_every_server_has_a_global_and_a_system_account() -> None:
    made = accounts_with_defaults([Account("A")])
    other = accounts_with_defaults([Account("SYS")], system="SYS")

    assert [account.name for account in made] == ["A", "$G", "$SYS"]
    assert [account.name for account in other] == ["SYS", "$G"]
    assert [account.name for account in accounts_with_defaults([], system="")] == ["$G"]


def test_a_private_export_is_open_to_whoever_holds_its_token() -> None:
    def pair(fill: int) -> Any:
        seed = signing.encode_seed(bytes([fill]) * 32, signing.PREFIX_BYTE_ACCOUNT)
        return signing.from_seed(seed)

    owner, guest, other = pair(1), pair(2), pair(3)

    def token(signer: Any, subject: Any, **more: Any) -> str:
        def part(value: object) -> str:
            return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

        nats = {"type": "activation", "kind": "service", "subject": "svc", **more.pop("nats", {})}
        claims = {"iss": _key(signer), "sub": _key(subject), "iat": 100, "nats": nats, **more}
        text = f"{part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{part(claims)}"
        signature = base64.urlsafe_b64encode(signer.sign(text.encode())).decode().rstrip("=")
        return f"{text}.{signature}"

    def importer(text: str, subject: str) -> JwtClaims:
        item = {"account": _key(owner), "subject": subject, "type": "service", "token": text}
        return JwtClaims("O", _key(guest), "guest", 0, 0, 0, {"imports": [item]})

    def opened(text: str, wants: str = "svc", **more: Any) -> bool:
        export = {"subject": "svc", "type": "service", "token_req": True, **more}
        owning = JwtClaims("O", _key(owner), "owner", 0, 0, 0, {"exports": [export]})
        made = {a.name: a for a in accounts_of_claims([owning, importer(text, wants)], now=1000)}
        wanted = made[_key(guest)].imports[0]
        return made[_key(owner)].offer(wanted, _key(guest)) is not None

    assert opened(token(owner, guest))
    assert opened(token(owner, guest, exp=1001))
    assert not opened(token(owner, other))
    assert not opened(token(other, guest))
    assert not opened(token(owner, guest, exp=1000))
    assert not opened(token(owner, guest, nbf=1001))
    assert not opened(token(owner, guest), revocations={_key(guest): 100})
    assert not opened(token(owner, guest), subject="svc.other")
    assert not opened(token(owner, guest), wants="other", subject=">")
    assert not opened(token(owner, guest, nats={"kind": "stream"}))
    assert not opened(token(owner, guest, nats={"subject": "other"}))
    assert not opened(token(owner, guest, nats={"type": "account"}))
    assert not opened(token(owner, guest), revocations={"*": 100})
    assert not opened(token(owner, guest)[:-3])
    assert not opened("")


def _key(pair: Any) -> str:
    return str(pair.public_key.decode())


def test_an_account_is_read_from_its_jwt() -> None:
    nats = {
        "exports": [
            {"name": "s", "subject": "s.>", "type": "stream"},
            {"subject": "q", "type": "service", "response_type": "Stream"},
            {"subject": "p", "type": "service", "token_req": True},
        ],
        "imports": [
            {"subject": "t.>", "account": "AOWNER", "to": "imp", "type": "stream"},
            {"subject": "ask", "account": "AOWNER", "to": "svc", "type": "service"},
            {"subject": "t.*", "account": "AOWNER", "local_subject": "u.*", "type": "stream"},
        ],
        "limits": {"conn": 3, "subs": 4, "payload": 5, "disk_storage": -1},
        "mappings": {"a": [{"subject": "b", "weight": 40}, {"subject": "c"}]},
    }

    account = account_of_claims(JwtClaims("O", "AME", "mine", 0, 0, 0, nats))

    assert (account.name, account.label, account.jetstream) == ("AME", "mine", True)
    assert account.exports[1].response_type is ResponseType.STREAM
    assert not account.exports[2].is_open_to("AOTHER", "p")
    assert account.imports == (
        Import("AOWNER", "t.>", prefix="imp"),
        Import("AOWNER", "svc", True, to="ask"),
        Import("AOWNER", "t.*", to="u.*"),
    )
    limits = account.limits
    assert (limits.max_connections, limits.max_subscriptions, limits.max_payload) == (3, 4, 5)
    assert [(to.subject, to.weight) for to in account.mappings[0].destinations] == [
        ("b", 40),
        ("c", 100),
    ]
    assert not account_of_claims(JwtClaims("O", "AME", "mine", 0, 0, 0, {})).jetstream
