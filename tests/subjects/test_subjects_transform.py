import pytest

from millstream.subjects.transform import BadTransform, SubjectTransform


@pytest.mark.parametrize(
    ("source", "destination", "subject", "expected"),
    [
        ("foo", "bar", "foo", "bar"),
        ("foo.*", "bar.$1", "foo.x", "bar.x"),
        ("foo.*.*", "req.{{wildcard(2)}}.{{Wildcard( 1 )}}", "foo.a.b", "req.b.a"),
        ("foo.>", "bar.>", "foo.a.b", "bar.a.b"),
        ("", "all.>", "a.b", "all.a.b"),
        ("*", "{{splitfromleft(1,3)}}", "12345", "123.45"),
        ("*", "{{SplitFromRight(1,3)}}", "12345", "12.345"),
        ("*", "{{SliceFromLeft(1,3)}}", "1234567890", "123.456.789.0"),
        ("*", "{{SliceFromRight(1,3)}}", "1234567890", "1.234.567.890"),
        ("*", "{{split(1,-)}}", "-abc-def--ghi-", "abc.def.ghi"),
        ("*", "{{left(1,3)}}", "1234567890", "123"),
        ("*", "{{right(1,3)}}", "1234567890", "890"),
        ("*", "{{left(1,9)}}", "1234", "1234"),
        ("*", "{{splitfromleft(1,9)}}", "1234", "1234"),
        ("a.*", "$JS.{{wildcard(1)}}", "a.x", "$JS.x"),
        ("*", "{{partition(0)}}", "x", "0"),
        ("*.*", "{{partition(10,1,2)}}", "foo.bar", str(0xBF9CF968 % 10)),
        ("foo", "p.{{partition(1)}}", "foo", "p.0"),
    ],
)
def test_a_subject_is_rewritten_as_the_template_says(
    source: str, destination: str, subject: str, expected: str
) -> None:
    transform = SubjectTransform(source, destination)

    assert transform.matches(subject)
    assert transform.apply(subject) == expected


def test_random_stays_below_its_bound() -> None:
    transform = SubjectTransform("*", "{{random(3)}}")

    assert {transform.apply("x") for _ in range(200)} == {"0", "1", "2"}


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        ("foo.*", "bar.*"),
        ("foo.>", "bar"),
        ("foo", "bar.>"),
        ("foo..a", "bar"),
        ("foo.*", "bar.$2"),
        ("foo.*", "bar.{{wildcard(2)}}"),
        ("foo.*", "bar.{{wildcard()}}"),
        ("foo.*", "bar.{{wildcard(1,2)}}"),
        ("foo.*", "bar.{{wildcard(x)}}"),
        ("foo.*", "bar.{{unknown(1)}}"),
        ("foo.*", "bar.{{split(1,a b)}}"),
        ("foo.*", "bar.{{split(1)}}"),
        ("foo", "bar.{{wildcard(1)}}"),
    ],
)
def test_a_template_that_cannot_work_is_refused(source: str, destination: str) -> None:
    with pytest.raises(BadTransform):
        SubjectTransform(source, destination)


def test_an_import_may_only_use_wildcards_and_must_use_each() -> None:
    assert SubjectTransform("a.*.*", "b.$2.$1", strict=True).apply("a.x.y") == "b.y.x"
    with pytest.raises(BadTransform):
        SubjectTransform("a.*.*", "b.$1", strict=True)
    with pytest.raises(BadTransform):
        SubjectTransform("a.*", "b.{{partition(3,1)}}", strict=True)


def test_a_pattern_takes_only_its_own_subjects() -> None:
    transform = SubjectTransform("a.*.>", "b.$1.>")

    assert transform.matches("a.x.y")
    assert not transform.matches("a.x")
    assert not transform.matches("b.x.y")
    assert not transform.matches("a..y")
