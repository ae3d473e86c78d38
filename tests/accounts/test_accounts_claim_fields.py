"""No field of a JWT is dropped in silence: it acts, describes, or is named with the reason."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import nkeys as signing
import pytest

from millstream.accounts import claim_shapes
from millstream.accounts.callout.terms import terms_of_claims
from millstream.accounts.claim_fields import FIELDS, Fate, without_effect
from millstream.accounts.claims import accounts_of_claims
from millstream.accounts.credentials import permissions_of_claims
from millstream.accounts.jwt import Refused, Trust, decode
from millstream.accounts.jwt_kind import JwtKind
from support.annotations import structs_in
from support.jwt_makers import Holder, Operator

SHAPES = {
    JwtKind.OPERATOR: claim_shapes.Operator,
    JwtKind.ACCOUNT: claim_shapes.AccountClaim,
    JwtKind.USER: claim_shapes.UserClaim,
    JwtKind.ACTIVATION: claim_shapes.Activation,
}
EVERY = [(kind, path) for kind, fields in FIELDS.items() for path in fields]
NOW = 1_700_000_000.0


def leaves(shape: type, path: str) -> Iterator[str]:
    """Go through the fields of a shape, by path, down to those that hold no others."""
    for field in msgspec.structs.fields(shape):
        inner = list(structs_in(field.type))
        name = f"{path}{field.name}"
        for struct in inner:
            yield from leaves(struct, f"{name}.")
        if not inner:
            yield name


@pytest.mark.parametrize("kind", JwtKind)
def test_every_field_of_the_shapes_has_its_fate(kind: JwtKind) -> None:
    around = {field.name for field in msgspec.structs.fields(claim_shapes.Body)}
    assert {*around, *leaves(SHAPES[kind], "nats.")} == set(FIELDS[kind])


def test_every_field_that_does_not_act_says_why() -> None:
    silent = [
        path
        for fields in FIELDS.values()
        for path, field in fields.items()
        if (field.fate in (Fate.WARNED, Fate.REFUSED)) != bool(field.reason)
    ]
    assert silent == []


def said(path: str, value: Any) -> dict[str, Any]:
    """Return claims that say this at a path; lists and chosen names are put where they belong."""
    made: Any = value
    parts = path.split(".")
    for at in reversed(range(len(parts))):
        made = {parts[at]: made}
        inside = ".".join(parts[:at])
        if inside in ("nats.exports", "nats.imports", "nats.signing_keys", "nats.times"):
            made = [made]
        if inside == "nats.signing_keys.template.times":
            made = [made]
        if inside == "nats.mappings":
            made = {"a": [made]}
        if inside == "nats.limits.tiered_limits":
            made = {"R1": made}
    return dict(made)


@pytest.mark.parametrize(("kind", "path"), EVERY)
def test_what_does_not_act_is_found_by_name(kind: JwtKind, path: str) -> None:
    fate = FIELDS[kind][path].fate
    found = [(each.path, each.fate) for each in without_effect(kind, said(path, "x"))]
    assert found == ([(path, fate)] if fate in (Fate.WARNED, Fate.REFUSED) else [])


@pytest.mark.parametrize("kind", JwtKind)
def test_an_unknown_field_is_warned_of_and_the_case_does_not_count(
    kind: JwtKind,
) -> None:
    [unknown] = without_effect(kind, {"nats": {"colour": "red"}})
    assert str(unknown) == "'nats.colour' has no effect: this server knows no such field"
    for path in FIELDS[kind]:
        found = [each.fate for each in without_effect(kind, said(path, "x"))]
        assert [each.fate for each in without_effect(kind, said(path.upper(), "x"))] == found


# -- what acts makes a difference ----------------------------------------------------------------

OPERATOR = Operator()
OTHER = Holder(signing.PREFIX_BYTE_OPERATOR)
ACCOUNT, OWNER = (Holder(signing.PREFIX_BYTE_ACCOUNT) for _ in range(2))
SIGNER = Holder(signing.PREFIX_BYTE_ACCOUNT)
USER = Holder(signing.PREFIX_BYTE_USER)
NO_LIMIT: dict[str, Any] = dict.fromkeys(
    ("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1
) | {"wildcards": True}
SCOPE = {"kind": "user_scope", "key": SIGNER.public}


class Case(NamedTuple):
    """Two claims that differ in one field alone."""

    one: dict[str, Any]
    other: dict[str, Any]


def account_seen(nats: dict[str, Any], body: dict[str, Any]) -> Any:
    """Return all that an account's JWT leads to: refusal, the account, and what users may do."""
    whole = {"limits": NO_LIMIT, "type": "account", "version": 2, **nats}
    token = OPERATOR.sign_claims(ACCOUNT.public, "main", whole, **body)
    trust = Trust([OPERATOR.token])
    try:
        claims = trust.add_account(token)
    except Refused as error:
        return str(error)
    exporter = OPERATOR.account("owner", exports=[{"subject": "o.>", "type": "stream",
                                                   "token_req": True}])  # fmt: skip
    users = [user_seen(trust, {}, {}, signer) for signer in (ACCOUNT, SIGNER)]
    bearer = user_seen(trust, {"bearer_token": True}, {}, ACCOUNT)
    owner = decode(exporter.token, JwtKind.ACCOUNT)
    made = accounts_of_claims([claims, owner], NOW)
    return repr((made, users, bearer, terms_of_claims(claims)))


def user_seen(trust: Trust, nats: dict[str, Any], body: dict[str, Any], signer: Holder) -> Any:
    own = {"issuer_account": ACCOUNT.public} if signer is not ACCOUNT else {}
    grants = {} if signer is SIGNER else {"subs": -1, "data": -1, "payload": -1}
    whole = {"type": "user", "version": 2, "tags": ["t:v"], **grants, **own, **nats}
    token = signer.sign_claims(body.pop("sub", USER.public), body.pop("name", "u"), whole, **body)
    try:
        admitted = trust.admit(token, now=NOW, address="10.0.0.1", kind="STANDARD")
        rights = permissions_of_claims(admitted.permissions)
    except Exception as error:  # whatever keeps it out is a difference
        return str(error)
    # What the JWT merely repeats is no effect.
    kept = {key: admitted.permissions.get(key) for key in ("subs", "payload", "bearer_token")}
    times = (admitted.expires, admitted.account_expires)
    return repr((admitted.user, admitted.account, admitted.claims.name, rights, kept, times))


def _export(**more: Any) -> dict[str, Any]:
    return {"exports": [{"subject": "s.*", "type": "service", **more}]}


def _import(**more: Any) -> dict[str, Any]:
    return {"imports": [{"subject": "o.a", "type": "service", "account": OWNER.public, **more}]}


def _limits(**more: Any) -> dict[str, Any]:
    return {"limits": NO_LIMIT | more}


def _template(**more: Any) -> dict[str, Any]:
    return {"signing_keys": [SCOPE | {"template": more}]}


PLAIN: dict[str, Any] = {}
_BYTES = {"disk_storage": 9, "mem_storage": 9}
_ONE_EXPORT = {"exports": [{"subject": "s", "type": "stream"}]}
_LATENCY = {"sampling": 7, "results": "l"}
_TIERS: dict[str, Any] = {"tiered_limits": {"R1": _BYTES}}
_STREAM_LIMITS: dict[str, Any] = {
    **dict.fromkeys(("streams", "consumer", "max_ack_pending"), 7),
    **dict.fromkeys(("mem_max_stream_bytes", "disk_max_stream_bytes"), 7),
    **dict.fromkeys(("mem_storage", "disk_storage"), 7),
    "max_bytes_required": True,
}
_GRANTS: dict[str, Any] = {
    "pub.allow": {"pub": {"allow": ["a"]}},
    "pub.deny": {"pub": {"deny": ["a"]}},
    "sub.allow": {"sub": {"allow": ["a"]}},
    "sub.deny": {"sub": {"deny": ["a"]}},
    "resp.max": {"resp": {"max": 7, "ttl": 1}},
    "resp.ttl": {"resp": {"max": 1, "ttl": 7}},
    "src": {"src": ["127.0.0.1/32"]},
    "times.start": {"times": [{"start": "01:00:00", "end": "01:00:01"}]},
    "times.end": {"times": [{"start": "00:00:00", "end": "23:59:58"}]},
    "times_location": {
        "times": [{"start": "00:00:00", "end": "23:59:58"}], "times_location": "Asia/Tokyo",
    },
    "subs": {"subs": 7},
    "payload": {"payload": 7},
    "bearer_token": {"bearer_token": True},
    "allowed_connection_types": {"allowed_connection_types": ["WEBSOCKET"]},
}  # fmt: skip
_BESIDE: dict[str, Any] = {
    "resp.max": {"resp": {"max": 1, "ttl": 1}},
    "resp.ttl": {"resp": {"max": 1, "ttl": 1}},
    "times.start": {"times": [{"start": "00:00:00", "end": "23:59:59"}]},
    "times.end": {"times": [{"start": "00:00:00", "end": "23:59:59"}]},
    "times_location": {"times": [{"start": "00:00:00", "end": "23:59:58"}],
                       "times_location": "Europe/Berlin"},
}  # fmt: skip

ACCOUNT_CASES: dict[str, Case] = {
    "nats.type": Case(PLAIN, {"type": "user"}),
    "nats.version": Case(PLAIN, {"version": 3}),
    **{
        f"nats.limits.{key}": Case(_limits(**_BYTES), _limits(**(_BYTES | {key: value})))
        for key, value in _STREAM_LIMITS.items()
    },
    **{
        f"nats.limits.tiered_limits.{key}": Case(
            _limits(**_TIERS), _limits(tiered_limits={"R1": _BYTES | {key: value}})
        )
        for key, value in _STREAM_LIMITS.items()
    },
    **{f"nats.limits.{key}": Case(PLAIN, _limits(**{key: 7})) for key in ("subs", "payload")},
    "nats.limits.conn": Case(PLAIN, _limits(conn=7)),
    "nats.limits.leaf": Case(PLAIN, _limits(leaf=7)),
    "nats.limits.imports": Case(_import(), _import() | _limits(imports=0)),
    "nats.limits.exports": Case(_ONE_EXPORT, _ONE_EXPORT | _limits(exports=0)),
    "nats.limits.wildcards": Case(
        _export() | _limits(exports=7), _export() | _limits(exports=7, wildcards=False)
    ),
    "nats.limits.disallow_bearer": Case(PLAIN, _limits(disallow_bearer=True)),
    "nats.exports.subject": Case(_export(), _export(subject="t.*")),
    "nats.exports.type": Case(_export(), _export(type="stream")),
    "nats.exports.token_req": Case(_export(), _export(token_req=True)),
    "nats.exports.response_type": Case(_export(), _export(response_type="Stream")),
    "nats.exports.response_threshold": Case(_export(), _export(response_threshold=7)),
    "nats.exports.account_token_position": Case(_export(), _export(account_token_position=2)),
    "nats.exports.service_latency.sampling": Case(
        _export(service_latency=_LATENCY), _export(service_latency=_LATENCY | {"sampling": 8})
    ),
    "nats.exports.service_latency.results": Case(
        _export(service_latency=_LATENCY), _export(service_latency=_LATENCY | {"results": "m"})
    ),
    "nats.imports.subject": Case(_import(), _import(subject="o.b")),
    "nats.imports.account": Case(_import(), _import(account=SIGNER.public)),
    "nats.imports.to": Case(_import(), _import(to="x")),
    "nats.imports.local_subject": Case(_import(), _import(local_subject="x")),
    "nats.imports.type": Case(_import(), _import(type="stream")),
    "nats.imports.share": Case(_import(), _import(share=True)),
    "nats.signing_keys.kind": Case(_template(), {"signing_keys": [SCOPE | {"kind": "new"}]}),
    "nats.signing_keys.key": Case(
        _template(), {"signing_keys": [SCOPE | {"key": OWNER.public}]}
    ),
    **{
        f"nats.signing_keys.template.{key}": Case(
            _template(**_BESIDE.get(key, {})), _template(**value)
        )
        for key, value in _GRANTS.items()
    },
    "nats.revocations": Case(PLAIN, {"revocations": {USER.public: 2_000_000_000}}),
    **{
        f"nats.default_permissions.{key}": Case(
            {"default_permissions": _BESIDE.get(key, {})}, {"default_permissions": _GRANTS[key]}
        )
        for key in ("pub.allow", "pub.deny", "sub.allow", "sub.deny", "resp.max", "resp.ttl")
    },
    **{
        f"nats.mappings.{key}": Case(
            {"mappings": {"a": [{"subject": "b"}]}},
            {"mappings": {"a": [{"subject": "b", key: to}]}},
        )
        for key, to in {"weight": 7, "cluster": "c"}.items()
    },
    "nats.mappings.subject": Case(
        {"mappings": {"a": [{"subject": "b"}]}}, {"mappings": {"a": [{"subject": "c"}]}}
    ),
    "nats.tags": Case(
        {**_template(pub={"allow": ["a.{{account-tag(t)}}"]}), "tags": ["t:1"]},
        {**_template(pub={"allow": ["a.{{account-tag(t)}}"]}), "tags": ["t:2"]},
    ),
}  # fmt: skip

ELSEWHERE = Path(__file__).with_name("test_accounts_account.py")
# What these do takes more than one account, and is shown elsewhere.
_CALLED = {"auth_users": [USER.public]}
ACCOUNT_CASES |= {
    "nats.exports.allow_trace": Case(_export(), _export(allow_trace=True)),
    "nats.imports.allow_trace": Case(_import(), _import(allow_trace=True)),
    "nats.trace.dest": Case(PLAIN, {"trace": {"dest": "d"}}),
    "nats.trace.sampling": Case({"trace": {"dest": "d"}}, {"trace": {"dest": "d", "sampling": 7}}),
    "nats.authorization.auth_users": Case(PLAIN, {"authorization": _CALLED}),
    "nats.authorization.allowed_accounts": Case(
        {"authorization": _CALLED}, {"authorization": {**_CALLED, "allowed_accounts": ["*"]}}
    ),
    "nats.authorization.xkey": Case(
        {"authorization": _CALLED}, {"authorization": {**_CALLED, "xkey": "X"}}
    ),
}
SHOWN_BY = dict.fromkeys(
    ("nats.exports.revocations", "nats.imports.token"),
    "test_a_private_export_is_open_to_whoever_holds_its_token",
)
USER_CASES: dict[str, Case] = {
    "nats.type": Case(PLAIN, {"type": "account"}),
    "nats.version": Case(PLAIN, {"version": 3}),
    **{f"nats.{key}": Case(_BESIDE.get(key, {}), value) for key, value in _GRANTS.items()},
    "nats.issuer_account": Case(PLAIN, {"issuer_account": OWNER.public}),
    "nats.tags": Case({"tags": ["t:1"]}, {"tags": ["t:2"]}),
}
BODY_CASES: dict[str, Case] = {
    "iss": Case(PLAIN, {"iss": OWNER.public}),
    "sub": Case(PLAIN, {"sub": Holder(signing.PREFIX_BYTE_USER).public}),
    "name": Case(PLAIN, {"name": "v"}),
    "exp": Case(PLAIN, {"exp": 7}),
    "nbf": Case(PLAIN, {"nbf": 2_000_000_000}),
    "type": Case(PLAIN, {"type": "account"}),
}


def acting(kind: JwtKind) -> set[str]:
    return {path for path, field in FIELDS[kind].items() if field.fate is Fate.ACTS}


def test_every_acting_field_of_accounts_and_users_is_tried() -> None:
    around = {path for path in acting(JwtKind.ACCOUNT) if not path.startswith("nats.")}
    assert acting(JwtKind.ACCOUNT) - around == {*ACCOUNT_CASES, *SHOWN_BY}
    assert all(f"def {name}(" in ELSEWHERE.read_text() for name in SHOWN_BY.values())
    assert {p for p in acting(JwtKind.USER) if p.startswith("nats.")} == set(USER_CASES)
    # When a JWT was issued decides about revocation; the old place of issuer_account is below.
    assert acting(JwtKind.USER) - set(USER_CASES) == {*BODY_CASES, "nats", "iat", "issuer_account"}


@pytest.mark.parametrize("path", ACCOUNT_CASES)
def test_a_field_of_an_account_makes_a_difference(path: str) -> None:
    case = ACCOUNT_CASES[path]
    assert account_seen(case.one, {}) != account_seen(case.other, {})


def _trust() -> Trust:
    scope = SCOPE | {"template": {"pub": {"allow": ["a.{{tag(t)}}"]}, "subs": -1, "payload": -1}}
    claims = {"limits": NO_LIMIT, "type": "account", "version": 2, "signing_keys": [scope],
              "revocations": {USER.public: 1_500_000_000}}  # fmt: skip
    trust = Trust([OPERATOR.token])
    trust.add_account(OPERATOR.sign_claims(ACCOUNT.public, "main", claims))
    return trust


@pytest.mark.parametrize("path", USER_CASES)
def test_a_field_of_a_user_makes_a_difference(path: str) -> None:
    case, signer = USER_CASES[path], SIGNER if path == "nats.tags" else ACCOUNT
    seen: Callable[[dict[str, Any]], Any] = lambda nats: user_seen(_trust(), nats, {}, signer)  # noqa: E731
    assert seen(case.one) != seen(case.other)


@pytest.mark.parametrize("path", BODY_CASES)
def test_what_stands_around_the_claims_makes_a_difference(path: str) -> None:
    case = BODY_CASES[path]
    seen = [user_seen(_trust(), {}, dict(body), ACCOUNT) for body in case]
    assert seen[0] != seen[1]


def test_when_a_jwt_was_issued_decides_whether_it_is_revoked() -> None:
    assert user_seen(_trust(), {}, {"iat": 1_400_000_000}, ACCOUNT) == "revoked"
    assert user_seen(_trust(), {}, {"iat": 1_600_000_000}, ACCOUNT) != "revoked"


def operator_seen(nats: dict[str, Any]) -> Any:
    operator = Operator(**nats)
    trust = Trust([operator.token])
    seen = [trust.system_account]
    for signer in (operator, OTHER):
        claims = {"limits": NO_LIMIT, "type": "account", "version": 2}
        try:
            trust.add_account(signer.sign_claims(ACCOUNT.public, "main", claims))
            seen.append("taken")
        except Refused as error:
            seen.append(str(error))
    return seen


OPERATOR_CASES: dict[str, Any] = {
    "nats.signing_keys": [OTHER.public],
    "nats.strict_signing_key_usage": True,
    "nats.system_account": ACCOUNT.public,
    "nats.type": "user",
    "nats.version": 3,
}


@pytest.mark.parametrize("path", OPERATOR_CASES)
def test_a_field_of_an_operator_makes_a_difference(path: str) -> None:
    nats = {path.removeprefix("nats."): OPERATOR_CASES[path]}
    try:
        seen = operator_seen(nats)
    except Refused as error:
        seen = str(error)
    assert seen != operator_seen({})


def test_every_acting_field_of_an_operator_is_tried() -> None:
    tried = {*OPERATOR_CASES, "nats.assert_server_version"}  # the latter where files are read
    assert {path for path in acting(JwtKind.OPERATOR) if path.startswith("nats.")} == tried


def test_the_docs_name_every_field_that_does_not_act() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/security.md").read_text()
    missing = [
        path
        for kind, path in EVERY
        if FIELDS[kind][path].fate in (Fate.WARNED, Fate.REFUSED)
        and f"`{path.rpartition('.')[2]}`" not in page
        and f"`limits.{path.rpartition('.')[2]}`" not in page
    ]
    assert missing == []
