"""Generated JSON bodies: every field of every request, changed in every way that JSON allows.

A case is a few requests that are asked one after another on both servers; one of them carries the
changed body. The fields and their kinds come from the shapes that the requests are read by.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from millstream.consumers.pull.requests import PULL
from millstream.nats.jetstream import request_shapes as shapes
from millstream.wire.go_json import (
    Algorithm,
    Flag,
    GoTime,
    GoType,
    Listing,
    Shape,
    Table,
    Text,
    Whole,
    Word,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

TIME = '"2020-01-01T00:00:00Z"'
VALUES = [
    *(b"null", b"true", b"false", b"0", b"1", b"-1", b"-0", b"7", b"1.5", b"1.0", b"1e3", b"1E400"),
    *(b"2147483648", b"-2147483649", b"9223372036854775808", b"18446744073709551616"),
    *(b"1" + b"0" * 400, b'""', b'"x"', b'"1"', b'"null"', b'"a b"', b'"\xff"', b'"a\xe2\x82"'),
    *(b'"\\ud800"', b'"\\u0041\\n\\/"', b"[]", b"[null]", b'["@x"]', b"[1]", b"[[]]", b"[{}]"),
    *(b"[ null , 5 ]", b'["@.a",null]', b"{}", b'{"a":1}', b'{"a":null}', b'{ "a" : "b" }'),
    *(b'{"a":"b","a":null}', b"tru", b"01", b"+1", b".5", b"1.", b"-", b"1e", b"0x10", b"NaN"),
    *(b"Infinity", b"'x'", b'"\x01"', b'"\\x"', b'"\\u12"', b"nul", b"", b"[", b"{", b"]"),
]
TIMES = [
    *("2020-01-01T00:00:00z", "2020-01-01T00:00:00.123456789123Z", "2020-01-01T00:00:00,5Z"),
    *(
        "2020-01-01t00:00:00Z",
        "2020-01-01 00:00:00Z",
        "2020-02-30T00:00:00Z",
        "0000-01-01T0:00:00Z",
    ),
    *("2020-01-01T24:00:00Z", "2020-01-01T23:59:60Z", "2020-01-01T00:00:00+23:59", "bad", ""),
    *("2020-01-01T00:00:00+00:60", "2020-01-01T0:00:00Z", "2020-01-01T00:00:00", "2020-01-01"),
    *(
        "2020-01-01T00:00:00Zx",
        "2020-1-01T00:00:00Z",
        "2020-13-01T00:00:00Z",
        "2020-01-00T00:00:00Z",
    ),
    *("2020-01-01T00:00:00+25:00", "2020-01-01T00:00:00-01:00", "2020-01-01T00:60:00Z", "é\x7f"),
    *("2020-01-01T00:00:00.100Z", "2020-01-01T00:00:00+00:00", "9999-12-31T23:59:59Z"),
]
WORDS = ["LIMITS", "Old", "undefined", "lim\\u0069ts", "none ", "é"]
JUNK = [
    *(b"", b" ", b"\n\t ", b"null", b"true", b"5", b'"x"', b"[]", b"[{}]", b"{}", b" { } ", b"x"),
    *(
        b"{",
        b"{ ",
        b'{"',
        b'{"a',
        b'{"a"',
        b'{"a":',
        b'{"a":1',
        b'{"a":1,',
        b"{,}",
        b"{}}",
        b"{} {}",
    ),
    *(
        b"[" * 5,
        b"[" * 10001,
        b"{}x",
        b"{}\x00",
        b"\xef\xbb\xbf{}",
        b"\xff",
        b"//",
        b"{} null",
        b"nul",
    ),
    *(b'{"a" 1}', b"{1:2}", b"{a:1}", b'{"a":1 "b":2}', b"[1 2]", b"[1,]", b'{"a":1}', b'{"a":[}'),
    *(b'{"a":' + b"[" * 9999 + b"]" * 9999 + b"}", b'{"a":' + b'{"a":' * 300 + b"1" + b"}" * 301),
    *(
        b'{"\\ud800":1}',
        b'{"\xff":1}',
        b'{"":1}',
        b'{"a\\u0000\\"":1}',
        b"\x0b{}",
        b",{}",
        b":{}",
        b"}",
    ),
]


@dataclass(frozen=True, slots=True)
class Ask:
    """One request; ``is_many`` where several messages may answer it."""

    subject: str
    body: bytes = b""
    is_many: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """Requests around the one at ``at``, which carries the body."""

    name: str
    asks: tuple[Ask, ...]
    at: int

    @property
    def asked(self) -> Ask:
        """The request that carries the body."""
        return self.asks[self.at]


@dataclass(frozen=True, slots=True)
class Request:
    """A kind of request: what a good body is, and what is done before and after it."""

    subject: str
    shape: Shape
    base: dict[str, Any]
    before: tuple[Ask, ...] = ()
    after: tuple[Ask, ...] = ()
    is_many: bool = False

    def case(self, name: str, body: bytes) -> Case:
        """Ask this body."""
        asked = Ask(self.subject, body, self.is_many)
        title = f"{self.subject} {name}"
        return Case(title, (*self.before, asked, *self.after), len(self.before))


def api(subject: str, body: Any = None) -> Ask:
    return Ask(f"$JS.API.{subject}", b"" if body is None else json.dumps(body).encode())


_STREAM = {"name": "@S", "subjects": ["@.a", "@.b"], "storage": "memory", "allow_direct": True}
_MADE = (api("STREAM.CREATE.@S", _STREAM), *(Ask(f"@.{token}", b"12345") for token in "aab"))
_GONE = (api("STREAM.DELETE.@S"),)
_INFO = api("STREAM.INFO.@S", {"subjects_filter": ">", "deleted_details": True})


def _consumer(**config: Any) -> Ask:
    body = {"stream_name": "@S", "config": {"durable_name": "c", **config}}
    return api("CONSUMER.CREATE.@S.c", body)


_PINNED = _consumer(priority_policy="pinned_client", priority_groups=["g"])
REQUESTS = (
    Request(
        "$JS.API.STREAM.CREATE.@S",
        shapes.STREAM_CONFIG,
        {"name": "@S", "subjects": ["@.a"], "storage": "memory"},
        after=(_INFO, *_GONE),
    ),
    Request("$JS.API.STREAM.UPDATE.@S", shapes.STREAM_CONFIG, _STREAM, _MADE[:1], (_INFO, *_GONE)),
    Request(
        "$JS.API.CONSUMER.CREATE.@S.c",
        shapes.CREATE_CONSUMER,
        {"stream_name": "@S", "config": {"ack_policy": "explicit", "inactive_threshold": 10**12}},
        _MADE[:1],
        (api("CONSUMER.INFO.@S.c"), *_GONE),
    ),
    Request(
        "$JS.API.CONSUMER.DURABLE.CREATE.@S.c",
        shapes.CREATE_CONSUMER,
        {"stream_name": "@S", "config": {"durable_name": "c", "ack_policy": "explicit"}},
        _MADE[:1],
        (api("CONSUMER.INFO.@S.c"), *_GONE),
    ),
    Request("$JS.API.STREAM.NAMES", shapes.STREAM_NAMES, {"subject": "@.a"}, _MADE[:1], _GONE),
    Request("$JS.API.STREAM.LIST", shapes.STREAM_LIST, {"subject": "@.a"}, _MADE[:1], _GONE),
    Request("$JS.API.STREAM.INFO.@S", shapes.STREAM_INFO, {"offset": 0}, _MADE, _GONE),
    Request("$JS.API.STREAM.PURGE.@S", shapes.PURGE, {"filter": "@.a"}, _MADE, (_INFO, *_GONE)),
    Request("$JS.API.STREAM.MSG.GET.@S", shapes.GET_MESSAGE, {"seq": 2}, _MADE, _GONE),
    Request(
        "$JS.API.STREAM.MSG.DELETE.@S", shapes.DELETE_MESSAGE, {"seq": 2}, _MADE, (_INFO, *_GONE)
    ),
    Request(
        "$JS.API.STREAM.SNAPSHOT.@S", shapes.SNAPSHOT, {"deliver_subject": "a..b"}, _MADE[:1], _GONE
    ),
    Request(
        "$JS.API.STREAM.RESTORE.@R",
        shapes.RESTORE,
        {"config": {"name": "@X", "subjects": ["@.r"]}, "state": {"messages": 0}},
    ),
    Request("$JS.API.CONSUMER.NAMES.@S", shapes.CONSUMERS, {}, (_MADE[0], _PINNED), _GONE),
    Request("$JS.API.CONSUMER.LIST.@S", shapes.CONSUMERS, {}, (_MADE[0], _PINNED), _GONE),
    Request(
        "$JS.API.CONSUMER.PAUSE.@S.c",
        shapes.PAUSE,
        {"pause_until": "2100-01-01T00:00:00Z"},
        (_MADE[0], _PINNED),
        _GONE,
    ),
    Request(
        "$JS.API.CONSUMER.UNPIN.@S.c", shapes.UNPIN, {"group": "g"}, (_MADE[0], _PINNED), _GONE
    ),
    Request("$JS.API.CONSUMER.RESET.@S.c", shapes.RESET, {"seq": 2}, (*_MADE, _consumer()), _GONE),
    Request(
        "$JS.API.CONSUMER.MSG.NEXT.@S.c",
        PULL,
        {"batch": 5, "no_wait": True},
        (*_MADE, _consumer(ack_policy="explicit")),
        (api("CONSUMER.INFO.@S.c"), *_GONE),
        is_many=True,
    ),
    Request("$JS.API.DIRECT.GET.@S", shapes.GET_MESSAGE, {"seq": 2}, _MADE, _GONE, is_many=True),
    Request("$JS.API.DIRECT.GET.@S.@.a", shapes.GET_MESSAGE, {}, _MADE, _GONE, is_many=True),
)
# Requests without a body of their own: something must be said of what comes all the same.
BARE = (
    Request("$JS.API.STREAM.DELETE.@S", Shape("", {}), {}, _MADE[:1], _GONE),
    Request("$JS.API.CONSUMER.INFO.@S.c", Shape("", {}), {}, (_MADE[0], _PINNED), _GONE),
    Request("$JS.API.CONSUMER.DELETE.@S.c", Shape("", {}), {}, (_MADE[0], _PINNED), _GONE),
    Request("$JS.API.INFO", Shape("", {}), {}),
    Request("$JS.API.STREAM.LEADER.STEPDOWN.@S", shapes.STEP_DOWN, {}, _MADE[:1], _GONE),
)


def generate() -> Iterator[Case]:
    """Make every case, in the same order each time."""
    for request in REQUESTS:
        base = request.base
        yield request.case("as it should be", render(base))
        for path, kind in paths(request.shape):
            for name, body in changed(base, path, kind):
                yield request.case(f"{'.'.join(path)} {name}", body)
    for request in (*REQUESTS, *BARE):
        for junk in JUNK:
            yield request.case(repr(junk[:30]), junk)
        good = render(request.base)
        for tail in (b"x", b" ", b"\n", good, b"{}", b"null", b"[]", b"{", b"\x00", b"/**/"):
            yield request.case(f"then {tail[:9]!r}", good + tail)
        for end in range(1, len(good), max(1, len(good) // 9)):
            yield request.case(f"cut at {end}", good[:end])


def sample(cases: list[Case], count: int, seed: int = 0) -> list[Case]:
    """Choose some, the same each time."""
    return cases if count >= len(cases) else Random(seed).sample(cases, count)


def paths(shape: Shape, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], GoType]]:
    """Name every field of a shape, at whichever depth."""
    for key, kind in shape.fields.items():
        path = (*before, key)
        yield path, kind
        inner = kind.of if isinstance(kind, Listing) else kind
        if isinstance(inner, Shape):
            yield from paths(inner, (*path, "0") if isinstance(kind, Listing) else path)


def changed(
    base: dict[str, Any], path: tuple[str, ...], kind: GoType
) -> Iterator[tuple[str, bytes]]:
    """Make bodies in which one field is not what it was."""
    *parents, key = path
    good = fitting(kind)
    for value in [*VALUES, *special(kind), good]:
        yield f"= {value[:24]!r}", render(placed(base, parents, [(key, value)]))
    for odd in odd_keys(key):
        yield f"as {odd!r}", render(placed(base, parents, [(odd, good)]))
        yield f"also as {odd!r}", render(placed(base, parents, [(key, good), (odd, b"null")]))
    for first, second in (
        (good, b"null"),
        (b"null", good),
        (b"{}", good),
        (good, b"[]"),
        (good, good),
    ):
        pairs = [(key, first), (key, second)]
        yield f"twice {first[:9]!r} {second[:9]!r}", render(placed(base, parents, pairs))
    extra = [(key, good), (f"{key}x", b'{"a":[null]}')]
    yield "and a neighbour that there is not", render(placed(base, parents, extra))
    yield (
        "twice as an object",
        render(placed(base, parents, [(key, b"{}"), (key, b'{"name":"q"}')])),
    )


def special(kind: GoType) -> list[bytes]:
    if isinstance(kind, GoTime):
        return [json.dumps(text).encode() for text in TIMES]
    if isinstance(kind, Word | Algorithm):
        return [f'"{text}"'.encode() for text in (*kind.words, *WORDS)]
    if isinstance(kind, Listing | Table):
        return [b'["@.c","@.d"]', b'{"k":"v"}', b'{"k":null,"l":"m"}', b'{"5":5}', b'{"a/~b":5}']
    return []


def fitting(kind: GoType) -> bytes:
    """Return a value that a field of this kind takes."""
    match kind:
        case Text():
            return b'"@q"'
        case Flag():
            return b"true"
        case Whole():
            return b"3"
        case GoTime():
            return TIME.encode()
        case Word() | Algorithm():
            return json.dumps(list(kind.words)[-1]).encode()
        case Listing():
            return b"[%b]" % fitting(kind.of)
        case Table():
            return b'{"k":%b}' % fitting(kind.of)
        case _:
            return b"{}"


def odd_keys(key: str) -> list[str]:
    """Spell a key in other ways: the case does not count, all else does."""
    odd = [key.upper(), key.title(), key.replace("_", ""), f"{key} "]
    odd += [
        key.replace(a, b) for a, b in (("s", "\u017f"), ("k", "\u212a"), ("_", "-")) if a in key
    ]
    return [one for one in dict.fromkeys(odd) if one != key]


def placed(base: dict[str, Any], parents: list[str], pairs: list[tuple[str, bytes]]) -> list[Any]:
    """Return a body as pairs in which these replace those of their names."""
    if not parents:
        names = {pairs[0][0].lower()}
        kept = [(key, value) for key, value in base.items() if key.lower() not in names]
        return [*kept, *pairs]
    first, *rest = parents
    listed = rest[:1] == ["0"]
    inner = base.get(first)
    inside = placed(inner if isinstance(inner, dict) else {}, rest[1:] if listed else rest, pairs)
    value = b"[%b]" % render(inside) if listed else render(inside)
    return [*((key, old) for key, old in base.items() if key != first), (first, value)]


def render(body: Any) -> bytes:
    """Write a body down; what is bytes already stays as it is."""
    if isinstance(body, bytes):
        return body
    pairs = body.items() if isinstance(body, dict) else body
    if not isinstance(body, dict | list):
        return json.dumps(body).encode()
    if isinstance(body, list) and not all(isinstance(one, tuple) for one in body):
        return json.dumps(body).encode()
    shown = (json.dumps(key, ensure_ascii=False).encode() + b":" + render(v) for key, v in pairs)
    return b"{%b}" % b",".join(shown)
