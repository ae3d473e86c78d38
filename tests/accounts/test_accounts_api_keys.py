"""API keys as values: what is read, what is kept, who is found."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.accounts import api_keys
from millstream.accounts.api_keys import (
    SCOPES,
    ApiKey,
    ApiKeyRing,
    BadKeys,
    decode_keys,
    encode_keys,
    make_key,
    parse_keys,
    parse_scopes,
)


@pytest.mark.parametrize(
    ("entry", "scopes", "prefixes"),
    [
        ("s", SCOPES, ()),
        ("s:", SCOPES, ()),
        ("s::", SCOPES, ()),
        ("s:read", {"read"}, ()),
        ("s:R", {"read"}, ()),
        ("s:w", {"write"}, ()),
        ("s:rw", {"read", "write"}, ()),
        ("s:Read+DEL", {"read", "delete"}, ()),
        ("s:d+a", {"delete", "admin"}, ()),
        ("s:read+:a.", {"read"}, ("a.",)),
        ("s:rw:a.|b:c", {"read", "write"}, ("a.", "b:c")),
        ("s::tenant:1:", SCOPES, ("tenant:1:",)),
    ],
)
def test_an_entry_says_what_its_key_may_do(
    entry: str, scopes: set[str], prefixes: tuple[str, ...]
) -> None:
    (key,) = parse_keys(entry)
    assert set(key.scopes) == set(scopes)
    assert (key.prefixes, key.account) == (prefixes, "$G")
    assert key.digest == hashlib.sha256(b"s").digest()


@pytest.mark.parametrize(
    "text",
    [
        "s:+",
        "s:++:a",
        "s:+ +",
        "s:reed",
        "s:read+x",
        "s:*",
        "s:read write",
        ":read",
        "::a",
        "s:r:|",
    ],
)
def test_an_entry_that_nobody_can_follow_is_refused(text: str) -> None:
    with pytest.raises(BadKeys, match="entry 1: "):
        parse_keys(text)


def test_empty_entries_are_skipped_and_the_same_one_counts_once() -> None:
    assert parse_keys("") == parse_keys(" , ,") == ()
    assert len(parse_keys("a,,b:r, a ,")) == 2


def test_one_secret_with_two_sets_of_rights_is_refused() -> None:
    with pytest.raises(BadKeys, match="entry 2: the same secret comes twice"):
        parse_keys("a:read,a:write")


@given(st.text(min_size=1, max_size=30), st.text(max_size=30))
def test_no_refusal_repeats_what_was_given(secret: str, scopes: str) -> None:
    told = ""
    try:
        parse_keys(f"é{secret}é:é{scopes}é")
    except BadKeys as error:
        told = str(error)
    assert "é" not in told


def test_a_secret_is_in_no_form_of_its_key() -> None:
    (key,) = parse_keys("hunter2")
    assert "hunter2" not in repr(key)
    assert key.digest.hex() not in repr(key)
    assert not key.digest.hex().startswith(key.id.removeprefix("env-"))


def test_a_ring_finds_exactly_the_key_of_a_secret() -> None:
    ring = ApiKeyRing(parse_keys("one:read,two"))
    found = ring.find(b"one")
    assert found is not None
    assert found.scopes == {"read"}
    for wrong in (b"", b"on", b"one ", b"ONE", b"one\0", found.digest, found.digest.hex().encode()):
        assert ring.find(wrong) is None


def test_every_key_is_compared_wherever_the_right_one_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = []

    class Counting:
        @staticmethod
        def compare_digest(one: bytes, other: bytes) -> bool:
            compared.append(one)
            return one == other

    monkeypatch.setattr(api_keys, "hmac", Counting)
    ring = ApiKeyRing(parse_keys("a,b,c"))
    for secret in (b"a", b"c", b"x"):
        compared.clear()
        ring.find(secret)
        assert len(compared) == 3


def test_a_ring_that_lost_its_last_key_lets_nobody_in() -> None:
    ring = ApiKeyRing()
    assert not ring.required
    key, secret = make_key("one")
    ring.replace([key])
    assert ring.find(secret.encode()) == key
    ring.replace([])
    assert ring.required
    assert ring.find(secret.encode()) is None


def test_new_secrets_are_long_and_never_the_same() -> None:
    made = {make_key("x")[1] for _ in range(100)}
    assert len(made) == 100
    assert all(len(secret) >= 36 for secret in made)


def test_the_file_holds_digests_and_gives_the_same_keys_back() -> None:
    one, secret = make_key("one", parse_scopes("rw"), ("a.", "b:"), "A")
    none = ApiKey("none", bytes(32), frozenset())
    text = encode_keys([one, none])
    assert secret.encode() not in text
    assert decode_keys(text) == (one, none)  # no scopes stay no scopes


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{",
        b'{"version":2,"keys":[]}',
        b'{"version":1,"keys":[{"id":"a","sha256":"00","scopes":[]}]}',
        b'{"version":1,"keys":[{"id":"a","sha256":"zz","scopes":[]}]}',
        b'{"version":1,"keys":[{"id":"a","sha256":"%b","scopes":["all"]}]}' % (b"00" * 32),
        b'{"version":1,"keys":[{"id":"","sha256":"%b","scopes":[]}]}' % (b"00" * 32),
        b'{"version":1,"keys":[{"id":"a","sha256":"%b","scopes":[],"prefixes":[""]}]}'
        % (b"00" * 32),
        b'{"version":1,"keys":[{"id":"a","sha256":"%b","scopes":[],"more":1}]}' % (b"00" * 32),
    ],
)
def test_a_file_that_nobody_can_follow_is_refused(text: bytes) -> None:
    with pytest.raises(BadKeys):
        decode_keys(text)
