import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.kernel import _interest, _scan
from millstream.kernel._interest import Interest
from millstream.kernel.reference import interest as reference
from millstream.kernel.reference import scan as reference_scan


class Nowhere:
    def deliver(self, batch: object) -> None:
        raise AssertionError("nothing is published here")


tokens = st.sampled_from([b"a", b"b", b"bb", b"*", b">", b""])
subjects = st.lists(tokens, min_size=0, max_size=4).map(b".".join)
queues = st.sampled_from([b"", b"", b"q", b"r"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), subjects, queues),
        st.tuples(st.just("remove"), st.integers(1, 12), st.just(b"")),
        st.tuples(st.just("match"), subjects, st.just(b"")),
    ),
    max_size=40,
)


def sorted_match(
    found: tuple[list[int], dict[bytes, list[int]]],
) -> tuple[list[int], dict[bytes, list[int]]]:
    plain, groups = found
    return sorted(plain), {name: sorted(members) for name, members in groups.items()}


def add(interest: Interest | reference.Interest, pattern: bytes, queue: bytes) -> int | None:
    try:
        return interest.add_sink(pattern, Nowhere(), queue)
    except ValueError:
        return None


def is_legal(pattern: bytes) -> bool:
    return add(reference.Interest(), pattern, b"") is not None


@given(subjects.filter(is_legal), subjects.filter(is_legal))
def test_compiled_comparisons_of_patterns_agree_with_the_reference(a: bytes, b: bytes) -> None:
    one, other = a.split(b"."), b.split(b".")
    assert _interest.collide(a, b) == reference.collide(one, other)
    assert _interest.covers(a, b) == reference.covers(one, other)
    assert _interest.matches(a, b) == reference.matches(one, other)


@settings(max_examples=400)
@given(steps)
def test_compiled_interest_agrees_with_the_reference(
    program: list[tuple[str, bytes | int, bytes]],
) -> None:
    compiled, plain = Interest(cache=4, sweep=1), reference.Interest()
    for action, what, queue in program:
        if isinstance(what, int):
            assert compiled.remove_sink(what) == plain.remove_sink(what)
        elif action == "add":
            assert add(compiled, what, queue) == add(plain, what, queue)
        else:
            assert sorted_match(compiled.match(what)) == sorted_match(plain.match(what))
            found, groups = plain.match(what)
            assert compiled.has_interest(what) == bool(found or groups)
            assert compiled.count_interest(what) == (len(found), sum(map(len, groups.values())))
            if is_legal(what):
                found_reverse = sorted(compiled.reverse_match(what))
                assert found_reverse == sorted(plain.reverse_match(what))


@settings(max_examples=400)
@given(
    st.lists(st.tuples(subjects, queues), max_size=6),
    st.lists(tokens, min_size=1, max_size=3),
    st.lists(st.one_of(tokens, st.sampled_from([b"a.b", b"x"])), min_size=2, max_size=6),
    st.integers(1, 6),
)
def test_subjects_that_differ_in_their_last_token_match_as_the_reference_says(
    patterns: list[tuple[bytes, bytes]], before: list[bytes], last: list[bytes], removed: int
) -> None:
    compiled, plain = Interest(), reference.Interest()
    for pattern, queue in patterns:
        assert add(compiled, pattern, queue) == add(plain, pattern, queue)

    def compare() -> None:
        for token in last:
            subject = b".".join([*before, token])
            found, groups = plain.match(subject)
            assert compiled.count_interest(subject) == (len(found), sum(map(len, groups.values())))

    compare()
    assert compiled.remove_sink(removed) == plain.remove_sink(removed)
    compare()


@given(st.lists(st.tuples(subjects, queues), max_size=20), st.randoms())
def test_removing_everything_leaves_only_the_root(patterns: list[tuple[bytes, bytes]], r) -> None:  # type: ignore[no-untyped-def]
    interest = Interest()
    handles = [h for p, q in patterns if (h := add(interest, p, q)) is not None]
    r.shuffle(handles)
    for handle in handles:
        assert interest.remove_sink(handle)
    assert interest.nodes() == 1
    assert interest.stats()["num_subscriptions"] == 0


def test_the_cache_is_bounded_and_swept() -> None:
    interest = Interest(cache=100, sweep=10)
    handle = interest.add_sink(b"a.*", Nowhere())
    sizes = []
    for i in range(1000):
        assert interest.match(b"a.%d" % i) == ([handle], {})
        sizes.append(interest.stats()["num_cache"])
    assert max(sizes) == 100
    assert min(sizes[100:]) == 11


def test_a_repeated_subject_is_answered_from_the_cache() -> None:
    interest = Interest()
    interest.add_sink(b"a", Nowhere())
    for _ in range(10):
        interest.match(b"a")
    assert interest.stats()["cache_hits"] == 9


def test_a_removed_subscription_is_gone_from_cached_results() -> None:
    interest = Interest()
    handle = interest.add_sink(b"a", Nowhere())
    assert interest.match(b"a") == ([handle], {})
    interest.remove_sink(handle)
    assert interest.match(b"a") == ([], {})


def test_a_subscription_makes_only_the_results_stale_that_it_concerns() -> None:
    interest = Interest()
    interest.add_sink(b"a.*", Nowhere())

    def misses() -> int:
        before = interest.stats()
        for subject in (b"a.1", b"a.2", b"b.1"):
            interest.match(subject)
        after = interest.stats()
        return int(3 - (after["cache_hits"] - before["cache_hits"]))

    assert misses() == 3
    handle = interest.add_sink(b"a.1", Nowhere())
    assert misses() == 1
    interest.remove_sink(handle)
    assert misses() == 1
    handle = interest.add_sink(b"a.>", Nowhere())
    assert misses() == 2
    interest.remove_sink(handle)
    assert misses() == 2
    interest.add_sink(b"c", Nowhere())
    assert misses() == 0


def test_statistics_tell_the_hit_rate_and_the_fan_out_of_what_is_cached() -> None:
    interest = Interest()
    assert interest.stats()["cache_hit_rate"] == 0
    for queue in (b"", b"", b"q"):
        interest.add_sink(b"a", Nowhere(), queue)
    interest.add_sink(b"b", Nowhere())
    for subject in (b"a", b"a", b"a", b"b"):
        interest.match(subject)
    stats = interest.stats()
    assert (stats["max_fanout"], stats["avg_fanout"]) == (3, 2)
    assert stats["cache_hit_rate"] == 0.5


def test_a_watcher_hears_of_the_first_and_of_the_last_subscription() -> None:
    interest = Interest()
    heard: list[bool] = []
    interest.watch(b"a.b", b"", heard.append)
    interest.add_sink(b"a.*", Nowhere())
    interest.add_sink(b"a.b", Nowhere(), b"q")
    assert heard == []
    first = interest.add_sink(b"a.b", Nowhere())
    second = interest.add_sink(b"a.b", Nowhere())
    interest.remove_sink(first)
    assert heard == [True]
    interest.remove_sink(second)
    assert heard == [True, False]


def test_a_watcher_of_a_queue_group_hears_of_that_group_alone_until_it_leaves() -> None:
    interest = Interest()
    heard: list[bool] = []
    handle = interest.add_sink(b"a", Nowhere(), b"q")
    interest.add_sink(b"a", Nowhere())
    undo = interest.watch(b"a", b"q", heard.append)
    assert heard == [True]
    interest.remove_sink(handle)
    assert heard == [True, False]
    undo()
    undo()
    interest.add_sink(b"a", Nowhere(), b"q")
    assert heard == [True, False]
    with pytest.raises(ValueError, match="literal"):
        interest.watch(b"a.*", b"", heard.append)


def test_a_watcher_may_subscribe_and_a_failing_one_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    interest = Interest()
    heard: list[bool] = []
    interest.watch(b"a", b"", lambda _: 1 / 0)
    interest.watch(b"a", b"", lambda _: interest.add_sink(b"b", Nowhere()))
    interest.watch(b"b", b"", heard.append)
    interest.add_sink(b"a", Nowhere())
    assert heard == [True]
    assert "division by zero" in caplog.text


def test_ten_thousand_children_of_one_token_are_found_and_pruned() -> None:
    interest = Interest()
    handles = {i: interest.add_sink(b"top.%d.leaf" % i, Nowhere()) for i in range(10_000)}
    assert all(interest.match(b"top.%d.leaf" % i) == ([h], {}) for i, h in handles.items())
    for handle in handles.values():
        interest.remove_sink(handle)
    assert interest.nodes() == 1


def test_an_illegal_pattern_is_refused_without_a_trace() -> None:
    interest = Interest()
    for pattern in (b"", b".", b"a.", b".a", b"a..b", b">.a", b"a.>.b"):
        with pytest.raises(ValueError, match="not a subject"):
            interest.add_sink(pattern, Nowhere())
    assert interest.nodes() == 1


def test_the_deepest_legal_subject_is_matched() -> None:
    interest = Interest()
    deep = b".".join([b"x"] * 2048)
    handles = {
        interest.add_sink(b".".join([b"*"] * 2048), Nowhere()),
        interest.add_sink(deep, Nowhere()),
    }
    assert set(interest.match(deep)[0]) == handles


def test_an_interest_lets_go_of_its_sinks() -> None:
    sink = Nowhere()
    interest = Interest()
    handle = interest.add_sink(b"a", sink)
    holders = len(gc.get_referrers(sink))
    interest.remove_sink(handle)
    assert len(gc.get_referrers(sink)) == holders - 1


@given(
    st.lists(st.sampled_from([b" ", b"\t", b"\r", b"x", b"yz"])).map(b"".join),
    st.integers(0, 8),
    st.booleans(),
)
def test_compiled_words_agree_with_the_reference(line: bytes, most: int, at_cr: bool) -> None:
    assert _scan.words(line, most, at_cr) == reference_scan.words(line, most, at_cr)


@given(st.one_of(st.binary(max_size=12), st.integers(0, 10**11).map(lambda n: b"%d" % n)))
def test_compiled_size_agrees_with_the_reference(text: bytes) -> None:
    assert _scan.size(text) == reference_scan.size(text)


@given(st.integers(0, 2**64 - 1))
def test_compiled_decimal_agrees_with_the_reference(value: int) -> None:
    assert _scan.decimal(value) == reference_scan.decimal(value)


DAY_NS = 86_400 * 10**9


@given(
    st.integers(0, 2**64 - 1)
    | st.integers(0, 2**33).map(lambda seconds: seconds * 10**9)
    | st.builds(lambda day, ns: day * DAY_NS + ns, st.integers(0, 200_000), st.sampled_from([0, 1]))
)
def test_compiled_time_agrees_with_the_reference(ts_ns: int) -> None:
    assert _scan.time(ts_ns) == reference_scan.time(ts_ns)


def test_a_time_on_a_leap_day_keeps_only_the_digits_that_it_needs() -> None:
    assert _scan.time(951_868_799_500_000_000) == b"2000-02-29T23:59:59.5Z"
