import random

import pytest

from millstream.accounts import permissions
from millstream.accounts.permissions import (
    BadPermission,
    ReplyAllowance,
    Responses,
    Rule,
    SubjectRule,
)
from millstream.subjects.subject import is_pattern, is_subset


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


TOKENS = ("a", "b", "*", ">", "ü")
QUEUES = ("", "", "", "q", "v1.x", "v1.*")


def _patterns(dice: random.Random, count: int) -> list[str]:
    made = []
    while len(made) < count:
        text = ".".join(dice.choice(TOKENS) for _ in range(dice.randint(1, 4)))
        if is_pattern(text):
            made.append(text)
    return made


def test_long_lists_say_what_each_of_their_entries_says() -> None:
    dice = random.Random(15)
    judged = {True: 0, False: 0}
    for _ in range(150):
        entries = [SubjectRule(p, dice.choice(QUEUES)) for p in _patterns(dice, 12)]
        rule, barred = Rule(tuple(entries)), Rule(None, tuple(entries))
        for subject in (*_patterns(dice, 12), "a..b", "a.\udcff.b", "ü." * 9000 + "a"):
            queue = dice.choice(("", "q", "v1.x", "other"))
            found = [each for each in entries if is_subset(subject, each.pattern)]
            named = [each for each in found if each.queue]
            mine = any(is_subset(queue, each.queue) for each in named if queue)
            plain = any(not each.queue for each in found)

            assert rule.permits(subject, queue) is (mine if queue and named else plain)
            assert barred.denies(subject, queue) is (plain or mine)
            judged[barred.denies(subject, queue)] += 1
    assert min(judged.values()) > 100


def test_a_judgement_does_not_look_at_each_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    rule = Rule.of(
        [f"in.{n}.>" for n in range(3000)] + [f"jobs.{n} workers" for n in range(1000)],
        [f"in.*.secret{n}" for n in range(3000)],
        queues=True,
    )

    def counted(inner: str, outer: str) -> bool:
        compared.append(outer)
        return is_subset(inner, outer)

    monkeypatch.setattr(permissions, "is_subset", counted)

    assert rule.permits("in.2999.x")
    assert not rule.permits("in.2999.secret2999")
    assert not rule.permits("out.1")
    assert rule.permits("jobs.999", "workers")
    assert not rule.permits("jobs.999", "others")
    assert len(compared) < 10


def test_rules_are_equal_however_often_they_were_asked() -> None:
    asked, fresh = Rule.of(["a"], ["b"]), Rule.of(["a"], ["b"])
    assert asked.permits("a")
    assert asked == fresh
    assert hash(asked) == hash(fresh)
