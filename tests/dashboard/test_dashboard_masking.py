"""Rules that cover up: what they name goes, and what cannot be taken apart goes whole."""

from pathlib import Path
from typing import Any

import pytest

from millstream.dashboard.masking import BadRules, Masking, MaskRule, read_rules
from millstream.http.request import Caller

READER = Caller(scopes=frozenset(("read",)))
OPERATOR = Caller()


def covered(rule: MaskRule, caller: Caller = READER, **message: Any) -> dict[str, Any]:
    shown = {"subject": "orders.new", "text": "{}", **message}
    Masking((rule,))(caller, "ORDERS", [shown])
    return shown


def test_paths_are_covered_and_the_rest_stays() -> None:
    rule = MaskRule(paths=("$.card", "$.lines[*].price", "$.who.*"))
    text = '{"card":1,"lines":[{"price":2,"sku":"a"}],"who":{"name":"x"},"id":3}'
    assert covered(rule, text=text)["text"] == (
        '{"card":"•••","lines":[{"price":"•••","sku":"a"}],"who":{"name":"•••"},"id":3}'
    )


def test_a_payload_that_cannot_be_taken_apart_is_covered_whole() -> None:
    rule = MaskRule(paths=("$.card",))
    assert covered(rule, text="card=17")["text"] == "•••"
    assert covered(rule, text='{"card":', cut=True)["text"] == "•••"
    shown = covered(rule, text=None, base64="AAEC")
    assert shown["text"] == "•••"
    assert "base64" not in shown


def test_headers_are_covered_by_name_and_the_payload_stays() -> None:
    rule = MaskRule(headers=("authorization",))
    shown = covered(rule, text="x", headers=[["Authorization", "s3cret"], ["A", "b"]])
    assert shown["headers"] == [["Authorization", "•••"], ["A", "b"]]
    assert shown["text"] == "x"


def test_who_has_the_scope_sees_everything_unless_the_rule_covers_for_all() -> None:
    assert covered(MaskRule(), OPERATOR, text="open")["text"] == "open"
    assert covered(MaskRule(unless_scope=""), OPERATOR, text="open")["text"] == "•••"


@pytest.mark.parametrize(
    ("rule", "is_covered"),
    [
        (MaskRule(stream="ORD*"), True),
        (MaskRule(stream="JOBS"), False),
        (MaskRule(subject="orders.>"), True),
        (MaskRule(subject="orders.old"), False),
    ],
)
def test_a_rule_is_for_some_streams_and_subjects(rule: MaskRule, is_covered: bool) -> None:
    assert (covered(rule, text="x")["text"] == "•••") is is_covered


def test_rules_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text('[{"strem": "A"}]')
    with pytest.raises(BadRules, match="strem"):
        read_rules(tmp_path / "rules")
    with pytest.raises(BadRules, match="No such file"):
        read_rules(tmp_path / "none")
