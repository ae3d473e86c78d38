import base64
from dataclasses import replace

import bcrypt
import nkeys as signing

from millstream.accounts.credentials import Credentials, Identity, Presented, User
from millstream.accounts.permissions import Permissions, Rule

LIMITED = Permissions(publish=Rule.of(["a.>"]))


def test_without_anyone_configured_everyone_may_do_everything() -> None:
    credentials = Credentials()

    assert credentials.open
    assert not credentials.required
    assert credentials.identify(Presented(), now=0) == Identity()


def test_a_password_is_compared_plain_or_by_its_hash() -> None:
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    credentials = Credentials(
        [User("plain", "secret", permissions=LIMITED), User("hash", hashed, account="ORDERS")]
    )

    plain = credentials.identify(Presented(user="plain", password="secret"), now=0)
    hash_ = credentials.identify(Presented(user="hash", password="secret"), now=0)

    assert plain == Identity("plain", "$G", LIMITED)
    assert hash_ is not None
    assert hash_.account == "ORDERS"
    for wrong in (
        Presented(user="plain", password="Secret"),
        Presented(user="plain"),
        Presented(user="hash", password=hashed),
        Presented(user="nobody", password="secret"),
        Presented(),
    ):
        assert credentials.identify(wrong, now=0) is None


def test_a_token_opens_and_another_does_not() -> None:
    credentials = Credentials(token="t0k3n")

    assert credentials.identify(Presented(token="t0k3n"), now=0) == Identity()
    assert credentials.identify(Presented(token="t0k3"), now=0) is None
    assert credentials.identify(Presented(), now=0) is None


def test_no_auth_user_stands_in_only_for_a_client_that_says_nothing() -> None:
    credentials = Credentials([User("guest", "x", account="G")], no_auth_user="guest")

    guest = credentials.identify(Presented(), now=0)

    assert not credentials.required
    assert guest is not None
    assert guest.account == "G"
    assert credentials.identify(Presented(user="guest", password="wrong"), now=0) is None


def test_an_nkey_must_sign_this_connections_nonce() -> None:
    pair = signing.from_seed(signing.encode_seed(bytes(32), signing.PREFIX_BYTE_USER))
    public = pair.public_key.decode()
    credentials = Credentials([User(nkey=public)])
    signature = base64.urlsafe_b64encode(pair.sign(b"nonce")).decode().rstrip("=")
    presented = Presented(nkey=public, signature=signature, nonce="nonce")

    assert credentials.wants_nonce
    assert credentials.identify(presented, now=0) == Identity(public)
    assert credentials.identify(replace(presented, nonce="other"), now=0) is None
    assert credentials.identify(replace(presented, signature="!"), now=0) is None


def test_a_user_bound_to_a_kind_of_connection_is_refused_on_another() -> None:
    user = User("ws", "x", connection_types=frozenset({"WEBSOCKET"}))

    assert Credentials([user]).identify(Presented(user="ws", password="x"), now=0) is None


def test_a_certificate_name_maps_to_its_user() -> None:
    credentials = Credentials([User("CN=a", account="A")], map_certificates=True)

    mapped = credentials.identify(Presented(certificate_names=("x", "CN=a")), now=0)

    assert mapped is not None
    assert mapped.account == "A"
    assert credentials.identify(Presented(certificate_names=("x",)), now=0) is None
