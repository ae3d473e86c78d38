import pytest

from millstream.accounts import templates
from millstream.accounts.templates import BadTemplate, Names, filled

NAMES = Names("alice", "UALICE", "orders", "AORDERS", ("region:eu", "region:us", "team:x"), ())


def allowed(*subjects: str) -> list[str]:
    made: list[str] = filled({"pub": {"allow": list(subjects)}}, NAMES)["pub"]["allow"]
    return made


def test_placeholders_stand_for_user_and_account() -> None:
    assert allowed("a.{{name()}}.>", "{{ subject() }}") == ["a.alice.>", "UALICE"]
    assert allowed("{{account-name()}}.{{Account-Subject()}}") == ["orders.AORDERS"]
    assert allowed("plain.>") == ["plain.>"]


def test_a_tag_gives_a_subject_for_each_of_its_values() -> None:
    assert allowed("{{tag(region)}}.{{tag(team)}}.{{tag(region)}}") == ["eu.x.eu", "us.x.us"]
    assert allowed("q.{{tag(region)}} workers") == ["q.eu workers", "q.us workers"]


def test_what_cannot_be_filled_in_allows_nothing() -> None:
    made = filled({"sub": {"allow": ["{{tag(nope)}}.>"]}}, NAMES)["sub"]

    assert made == {"deny": [">"]}
    assert allowed("{{tag(nope)}}.>", "b") == ["b"]


def test_a_denial_that_cannot_be_filled_in_refuses_the_user() -> None:
    for wrong in ("{{tag(nope)}}", "{{account-tag(region)}}.x", "{{nothing()}}"):
        with pytest.raises(BadTemplate):
            filled({"pub": {"deny": [wrong]}}, NAMES)


def test_templates_do_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "MOST_SUBJECTS", 3)

    with pytest.raises(BadTemplate):
        allowed("{{tag(region)}}.a", "{{tag(region)}}.b")
