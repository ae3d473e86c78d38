import base64
import json
from typing import Any

import nkeys as signing
import pytest

from millstream.accounts import nkeys
from millstream.accounts.jwt import Refused, Trust, decode
from millstream.accounts.jwt_kind import JwtKind
from millstream.accounts.nkeys import BadKey, Role

_PREFIX = {
    Role.OPERATOR: signing.PREFIX_BYTE_OPERATOR,
    Role.ACCOUNT: signing.PREFIX_BYTE_ACCOUNT,
    Role.USER: signing.PREFIX_BYTE_USER,
}
NOW = 1_700_000_000.0


class Key:
    def __init__(self, role: Role, fill: int) -> None:
        self._pair = signing.from_seed(signing.encode_seed(bytes([fill]) * 32, _PREFIX[role]))
        self.public = self._pair.public_key.decode()

    def sign(self, message: bytes) -> bytes:
        return bytes(self._pair.sign(message))

    def jwt(self, subject: "Key", nats: dict[str, Any], **more: Any) -> str:
        header = _part({"typ": "JWT", "alg": "ed25519-nkey"})
        body = _part(
            {"iss": self.public, "sub": subject.public, "iat": 100, "name": "n", "nats": nats}
            | more
        )
        signature = self.sign(f"{header}.{body}".encode())
        return f"{header}.{body}.{_unpadded(signature)}"


def _unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _part(value: dict[str, Any]) -> str:
    return _unpadded(json.dumps(value).encode())


OPERATOR, ACCOUNT, USER = Key(Role.OPERATOR, 1), Key(Role.ACCOUNT, 2), Key(Role.USER, 3)
SIGNER = Key(Role.ACCOUNT, 4)


def trust(**account: Any) -> Trust:
    made = Trust([OPERATOR.jwt(OPERATOR, {})])
    made.add_account(OPERATOR.jwt(ACCOUNT, account))
    return made


def admit(trusted: Trust, text: str, address: str = "10.1.2.3", kind: str = "STANDARD") -> Any:
    return trusted.admit(text, now=NOW, address=address, kind=kind)


def test_a_public_key_survives_its_text_form() -> None:
    raw = bytes(range(32))
    text = nkeys.encode(Role.USER, raw)

    assert text.startswith("U")
    assert len(text) == 56
    assert nkeys.decode(text, Role.USER) == raw


def test_a_key_of_another_role_or_a_damaged_one_is_refused() -> None:
    with pytest.raises(BadKey):
        nkeys.decode(USER.public, Role.ACCOUNT)
    with pytest.raises(BadKey):
        nkeys.decode(USER.public[:-1] + ("A" if USER.public[-1] != "A" else "B"), Role.USER)
    with pytest.raises(BadKey):
        nkeys.decode("not!base32", Role.USER)


def test_a_signature_of_the_nonce_is_checked() -> None:
    signature = USER.sign(b"nonce")

    assert nkeys.verify(USER.public, Role.USER, signature, b"nonce")
    assert not nkeys.verify(USER.public, Role.USER, signature, b"other")


def test_a_user_signed_by_its_account_is_admitted_with_its_permissions() -> None:
    text = ACCOUNT.jwt(USER, {"pub": {"allow": ["a.>"]}}, exp=int(NOW) + 60)

    admitted = admit(trust(), text)

    assert (admitted.user, admitted.account) == (USER.public, ACCOUNT.public)
    assert admitted.permissions["pub"] == {"allow": ["a.>"]}
    assert admitted.expires == int(NOW) + 60


def test_a_listed_signing_key_may_sign_and_an_unlisted_one_may_not() -> None:
    text = SIGNER.jwt(USER, {"issuer_account": ACCOUNT.public})

    assert admit(trust(signing_keys=[SIGNER.public]), text).account == ACCOUNT.public
    with pytest.raises(Refused):
        admit(trust(), text)


def test_a_scoped_signing_key_alone_says_what_its_users_may() -> None:
    scope = {"kind": "user_scope", "key": SIGNER.public, "template": {"sub": {"deny": [">"]}}}
    trusted = trust(signing_keys=[scope])
    plain = SIGNER.jwt(USER, {"issuer_account": ACCOUNT.public})
    wanting = SIGNER.jwt(USER, {"issuer_account": ACCOUNT.public, "pub": {"allow": [">"]}})

    nothing = {"subs": 0, "payload": 0}  # what the template leaves out
    assert admit(trusted, plain).permissions == {**nothing, "sub": {"deny": [">"]}}
    with pytest.raises(Refused):
        admit(trusted, wanting)


def test_default_permissions_apply_to_a_user_without_its_own() -> None:
    trusted = trust(default_permissions={"pub": {"deny": ["x"]}})

    assert admit(trusted, ACCOUNT.jwt(USER, {})).permissions["pub"] == {"deny": ["x"]}


@pytest.mark.parametrize(
    ("nats", "more"),
    [
        ({}, {"exp": int(NOW)}),
        ({}, {"nbf": int(NOW) + 5}),
        ({"src": ["192.168.0.0/16"]}, {}),
        ({"allowed_connection_types": ["WEBSOCKET"]}, {}),
        ({"times": [{"start": "01:00:00", "end": "02:00:00"}]}, {}),
    ],
)
def test_a_user_outside_its_time_place_or_kind_is_refused(
    nats: dict[str, Any], more: dict[str, Any]
) -> None:
    with pytest.raises(Refused):
        admit(trust(), ACCOUNT.jwt(USER, nats, **more))


LATE = {"start": "22:00:00", "end": "23:00:00"}  # it is 22:13:20
NIGHT = {"start": "20:00:00", "end": "01:00:00"}


@pytest.mark.parametrize(
    ("times", "exp", "left"),
    [
        ([LATE], 0, 2800),
        ([NIGHT], 0, 10_000),
        ([LATE, NIGHT], 0, 10_000),
        ([LATE], 100, 100),
        ([LATE], 9000, 2800),
    ],
)
def test_a_users_time_is_over_when_its_hours_are(
    times: list[dict[str, str]], exp: int, left: int
) -> None:
    more = {"exp": int(NOW) + exp} if exp else {}
    hours = {"times": times, "times_location": "UTC"}
    assert admit(trust(), ACCOUNT.jwt(USER, hours, **more)).expires == NOW + left


def test_hours_are_those_of_the_named_place() -> None:
    berlin = {"times": [{"start": "23:00:00", "end": "23:30:00"}]}
    admitted = admit(trust(), ACCOUNT.jwt(USER, {**berlin, "times_location": "Europe/Berlin"}))
    assert admitted.expires == NOW + 1000


def test_a_revoked_user_is_refused_until_issued_anew() -> None:
    trusted = trust(revocations={USER.public: 150})

    with pytest.raises(Refused):
        admit(trusted, ACCOUNT.jwt(USER, {}))
    assert admit(trusted, ACCOUNT.jwt(USER, {}, iat=200)).user == USER.public


def test_a_changed_or_foreign_jwt_is_refused() -> None:
    header, body, signature = ACCOUNT.jwt(USER, {}).split(".")
    other = Key(Role.OPERATOR, 9)

    with pytest.raises(Refused):
        admit(trust(), f"{header}.{body[:-2]}AA.{signature}")
    with pytest.raises(Refused):
        trust().add_account(other.jwt(ACCOUNT, {}))
    for text in ("", "a.b", "a.b.c", "....", header + "." + body + "."):
        with pytest.raises(Refused):
            admit(trust(), text)


def test_claims_are_read_as_go_reads_them() -> None:
    template = {"Pub": {"ALLOW": ["a.>", None]}, "SUB": None, "Subs": -1}
    limits = {"Conn": 5, "leaf": None, "LEAF": 3, "tiered_limits": {"R1": None}}
    signing_keys = [{"KIND": "user_scope", "Key": SIGNER.public, "Template": template}]
    text = OPERATOR.jwt(ACCOUNT, {"Limits": limits, "SIGNING_KEYS": signing_keys, "imports": None})

    read = decode(text, JwtKind.ACCOUNT)

    assert read.nats["limits"] == {"conn": 5, "leaf": 3, "tiered_limits": {"R1": {}}}
    assert read.unheeded == ()
    trusted = trust(Signing_Keys=signing_keys)
    granted = admit(trusted, SIGNER.jwt(USER, {"Issuer_Account": ACCOUNT.public}))
    assert granted.permissions["pub"] == {"allow": ["a.>"]}
    with pytest.raises(Refused, match="wrong type"):
        decode(OPERATOR.jwt(ACCOUNT, {"Limits": {"Conn": "5"}}), JwtKind.ACCOUNT)
