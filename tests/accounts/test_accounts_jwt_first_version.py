import base64
import json
from typing import Any

import nkeys as signing
import pytest

from millstream.accounts.jwt import JwtClaims, Refused, decode
from millstream.accounts.jwt_kind import JwtKind

OPERATOR = signing.from_seed(signing.encode_seed(bytes(32), signing.PREFIX_BYTE_OPERATOR))


def part(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def read(*, header_signed: bool = False, **nats: Any) -> JwtClaims:
    public = OPERATOR.public_key.decode()
    header = part({"typ": "jwt", "alg": "ed25519"})
    body = part({"iss": public, "sub": public, "type": "operator", "nats": nats})
    signed = f"{header}.{body}" if header_signed else body
    signature = base64.urlsafe_b64encode(OPERATOR.sign(signed.encode())).decode().rstrip("=")
    return decode(f"{header}.{body}.{signature}", JwtKind.OPERATOR)


def test_the_first_version_signs_its_body_alone() -> None:
    assert read().subject == OPERATOR.public_key.decode()
    with pytest.raises(Refused, match="does not fit"):
        read(header_signed=True)


def test_a_newer_body_cannot_pass_as_the_first_version() -> None:
    with pytest.raises(Refused, match="signs its header too"):
        read(version=2)
