import pytest

from millstream.accounts.permissions import BadPermission, ReplyAllowance, Responses, Rule


@pytest.mark.parametrize(
    ("allow", "deny", "subject", "queue", "expected"),
    [
        (None, [], "a.b", "", True),
        ([], [], "a.b", "", False),
        (["a.*"], [], "a.b", "", True),
        (["a.*"], [], "a.b.c", "", False),
        (["a.>"], [], "a.>", "", True),
        (["a.b"], [], "a.*", "", False),
        (["a.>"], ["a.secret"], "a.secret", "", False),
        (["a.>"], ["a.secret"], "a.*", "", True),
        (None, ["a.>"], "a.*", "", False),
        (["a v1"], [], "a", "v1", True),
        (["a v1"], [], "a", "v2", False),
        (["a v1"], [], "a", "", False),
        (["a"], [], "a", "any", True),
        (["a v1.*"], [], "a", "v1.x", True),
        (["a", "a v1"], [], "a", "v2", False),
        (["a"], ["a v1"], "a", "v1", False),
        (["a"], ["a v1"], "a", "v2", True),
        (["a"], ["a v1"], "a", "", True),
    ],
)
def test_a_rule_permits_what_its_lists_say(
    allow: list[str] | None, deny: list[str], subject: str, queue: str, expected: bool
) -> None:
    assert Rule.of(allow, deny, queues=True).permits(subject, queue) is expected


def test_deliveries_are_filtered_by_every_denial_that_is_about_the_subscription() -> None:
    rule = Rule.of(["a.>"], ["a.secret", "b", "c workers"], queues=True)

    assert rule.filters() == ("a.secret", "b")
    assert rule.filters("others") == ("a.secret", "b")
    assert rule.filters("workers") == ("a.secret", "b", "c")


def test_an_entry_that_is_no_subject_is_refused() -> None:
    for text in ("", "a..b", "a b c"):
        with pytest.raises(BadPermission):
            Rule.of([text], queues=True)
    with pytest.raises(BadPermission):
        Rule.of(["a queue"])


def test_an_answer_is_allowed_once_and_in_time() -> None:
    answers = ReplyAllowance(Responses(max_messages=1, seconds=10))
    answers.asked("_INBOX.1", now=0)
    answers.asked("_INBOX.2", now=0)

    assert answers.may_answer("_INBOX.1", now=5)
    assert not answers.may_answer("_INBOX.1", now=5)
    assert not answers.may_answer("_INBOX.2", now=10)
    assert not answers.may_answer("_INBOX.3", now=0)


def test_remembered_requests_are_bounded() -> None:
    answers = ReplyAllowance(Responses(max_messages=-1, seconds=-1), most=2)
    for reply in ("a", "b", "c"):
        answers.asked(reply, now=0)

    assert [answers.may_answer(reply, now=1e9) for reply in ("a", "b", "c")] == [False, True, True]
