from dataclasses import replace

import bcrypt
import pytest

from millstream.accounts.credentials import Credentials, Presented, User
from millstream.accounts.permissions import Permissions, Responses, Rule
from millstream.accounts.rights import Rights


def test_nothing_is_guarded_where_everything_is_allowed() -> None:
    rights = Rights(Permissions())

    assert not rights.guards_publishing
    assert not rights.answers_requests
    assert rights.hidden(b"") == ()


def test_whoever_may_only_answer_publishes_nothing_else() -> None:
    rights = Rights(Permissions(responses=Responses(max_messages=2, seconds=10)))
    rights.asked(b"_INBOX.1", now=0)

    assert not rights.may_publish(b"anything")
    assert rights.may_answer(b"_INBOX.1", now=1)
    assert rights.may_answer(b"_INBOX.1", now=9)
    assert not rights.may_answer(b"_INBOX.1", now=9)
    assert not rights.may_answer(b"_INBOX.2", now=1)


def test_other_bytes_are_another_subject() -> None:
    rights = Rights(Permissions(publish=Rule.of(["\xe9"])))

    assert rights.may_publish("\xe9".encode())
    assert not rights.may_publish(b"\xe9")


def test_a_slow_hash_is_computed_once_for_whoever_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    known = Credentials([User("a", hashed)])
    computed = []
    check = bcrypt.checkpw

    def counted(given: bytes, held: bytes) -> bool:
        computed.append(given)
        return check(given, held)

    monkeypatch.setattr(bcrypt, "checkpw", counted)
    for _ in range(3):
        assert known.identify(Presented(user="a", password="secret"), now=0) is not None
    for _ in range(2):
        assert known.identify(Presented(user="a", password="wrong"), now=0) is None

    assert computed == [b"secret", b"wrong", b"wrong"]


def test_an_address_that_guesses_is_not_listened_to_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    users = [User(name, bcrypt.hashpw(b"x", bcrypt.gensalt(4)).decode()) for name in "ab"]
    known = Credentials(users)
    guess = Presented(user="a", password="wrong", address="10.0.0.1")
    fits = Presented(user="a", password="x", address="10.0.0.1")
    other = Presented(user="b", password="x", address="10.0.0.1")
    assert known.identify(fits, now=0) is not None
    for _ in range(10):
        assert known.identify(guess, now=1) is None
    computed: list[bytes] = []
    monkeypatch.setattr(bcrypt, "checkpw", lambda given, held: computed.append(given))

    assert known.identify(guess, now=2) is None
    assert known.identify(other, now=2) is None
    assert computed == []
    assert known.identify(fits, now=2) is not None
    monkeypatch.undo()
    assert known.identify(other, now=11) is not None
    assert known.identify(replace(guess, password="x", address="10.0.0.2"), now=2) is not None


def test_nobody_gets_in_where_the_list_of_users_is_empty() -> None:
    nobody = Credentials([], closed=True)

    assert nobody.required
    assert nobody.identify(Presented(), now=0) is None
    assert nobody.identify(Presented(user="a", password=""), now=0) is None


def test_a_guest_may_be_known_by_an_nkey() -> None:
    key = "UAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    known = Credentials([User(nkey=key, account="A")], no_auth_user=key)

    guest = known.identify(Presented(), now=0)

    assert guest is not None
    assert guest.account == "A"


def test_answers_go_to_places_of_the_client_alone():
    free = Rights(Permissions(publish=Rule.of(["a"])))
    assert not free.guards_replies  # it may listen everywhere
    rights = Rights(
        Permissions(
            publish=Rule.of(["said.>"], ["said.not", "_INBOX.>"]),
            subscribe=Rule.of(["heard.>", "said.not", "_INBOX.mine.>"], ["heard.not.*"]),
        )
    )
    assert rights.guards_replies
    places = [b"said.x", b"heard.x", b"_INBOX.mine.1"]
    assert all(rights.may_be_sent_to(place) for place in places)
    foreign = [b"said.not", b"heard.not.x", b"_INBOX.yours.1", b"else.where"]
    assert not any(rights.may_be_sent_to(place) for place in foreign)
    settled = [b"heard.a.1", b"said.a.1"]
    assert all(rights.settles_stem(reply) for reply in settled)
    assert not any(rights.settles_stem(reply) for reply in (b"said.x", b"heard.not.x", b"alone"))
