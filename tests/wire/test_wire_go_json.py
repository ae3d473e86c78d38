"""JSON is read as Go's encoding/json reads it; what Go says of each text was taken from Go 1.27."""

from typing import Any

import pytest

from millstream.wire.go_json import (
    BOOL,
    DURATION,
    FLOAT64,
    INT,
    INT32,
    INT64,
    STRING,
    STRINGS,
    UINT64,
    Algorithm,
    GoJsonError,
    GoTime,
    Listing,
    Shape,
    Table,
    read_request,
    unmarshal,
    words,
)

INNER = {"a": STRING, "b": INT, "t": GoTime()}
SHAPE = Shape(
    "S",
    {
        "name": STRING,
        "i": INT64,
        "i32": INT32,
        "u": UINT64,
        "l": STRINGS,
        "d": Listing(DURATION),
        "m": Table(STRING),
        "p": Shape("In", INNER, pointer=True),
        "v": Shape("In", INNER),
        "x": Listing(Shape("In", INNER, pointer=True), "*server.In"),
        "y": Listing(Shape("In", INNER)),
        "r": words("a"),
        "c": Algorithm(("s2",), "unknown compression algorithm"),
        "t": GoTime(pointer=False),
        "b": BOOL,
        "K_k": Listing(UINT64),
        "f": FLOAT64,
    },
)
INTO = "into Go struct field S."


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"name":null,"i":null,"l":null,"m":null,"p":null,"v":null,"b":null,"t":null}', {}),
        ("null", {}),
        ('{"name":"a","NAME":"b"}', {"name": "b"}),
        ('{"NAME":"b","name":"a"}', {"name": "a"}),
        ('{"name":"a","Name":null}', {"name": "a"}),
        ('{"\\u212a_k":[3],"kk":5}', {"K_k": [3]}),
        ('{"nam\\u0065":"\\ud83d\\ude00\\ud800x\\/"}', {"name": "\U0001f600\ufffdx/"}),
        ('{"l":["a","b"],"l":[null,"c"]}', {"l": ["a", "c"]}),
        ('{"l":["a","b","c"],"l":["z"],"l":[null,null,null]}', {"l": ["z", "b", "c"]}),
        ('{"l":["a"],"l":[]}', {"l": []}),
        ('{"l":["a",null]}', {"l": ["a", ""]}),
        ('{"m":{"a":"1"},"m":{"b":"2"}}', {"m": {"a": "1", "b": "2"}}),
        ('{"m":{"a":"1"},"m":{"a":null}}', {"m": {"a": ""}}),
        ('{"m":{"a":"1"},"m":null}', {}),
        ('{"p":{"a":"x"},"p":{"b":2}}', {"p": {"a": "x", "b": 2}}),
        ('{"p":{"a":"x"},"p":null}', {}),
        ('{"v":{"a":"x"},"v":null}', {"v": {"a": "x"}}),
        ('{"x":[{"a":"q"},{"b":7}],"x":[{"b":1}]}', {"x": [{"a": "q", "b": 1}]}),
        ('{"y":[{"a":"q"}],"y":[null]}', {"y": [{"a": "q"}]}),
        ('{"i":-0,"f":1e3}', {"i": 0, "f": 1000.0}),
        ('{"t":"2020-01-01T1:00:00,50+00:60"}', {"t": "2020-01-01T01:00:00.5+01:00"}),
        ('{"t":"2020-01-01T00:00:00.1234567891Z"}', {"t": "2020-01-01T00:00:00.123456789Z"}),
        ('{"zz":' + "[" * 9999 + "]" * 9999 + "}", {}),
    ],
)
def test_what_go_takes_means_the_same(text: str, said: dict[str, Any]) -> None:
    assert unmarshal(text.encode(), SHAPE) == said


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"i":"x","r":5}', f"json: cannot unmarshal string {INTO}i of type int64"),
        ('{"r":5,"i":"x"}', 'can not unmarshal "5"'),
        ('{"r":null}', 'can not unmarshal "null"'),
        ('{"r":{ "a" : 1 }}', 'can not unmarshal "{ \\"a\\" : 1 }"'),
        ('{"r":"\\u0061"}', 'can not unmarshal "\\"\\\\u0061\\""'),
        ('{"c":5}', "json: cannot unmarshal number into Go value of type string"),
        ('{"c":null}', "unknown compression algorithm"),
        ('{"i":1.0}', f"json: cannot unmarshal number 1.0 {INTO}i of type int64"),
        ('{"u":-0}', f"json: cannot unmarshal number -0 {INTO}u of type uint64"),
        ('{"i32":2147483648}', f"json: cannot unmarshal number 2147483648 {INTO}i32 of type int32"),
        ('{"f":1e400}', f"json: cannot unmarshal number 1e400 {INTO}f of type float64"),
        ('{"b":"true"}', f"json: cannot unmarshal string {INTO}b of type bool"),
        ('{"m":[]}', f"json: cannot unmarshal array {INTO}m of type map[string]string"),
        ('{"m":{"a/~":5}}', f"json: cannot unmarshal number {INTO}m.a~1~0 of type string"),
        ('{"M":{"5":5}}', "json: cannot unmarshal number into S.M.5 of type string"),
        ('{"x":{}}', f"json: cannot unmarshal object {INTO}x of type []*server.In"),
        ('{"x":[{},{"a":5}]}', f"json: cannot unmarshal number {INTO}x.1.a of type string"),
        ('{"d":[1.5]}', "json: cannot unmarshal number 1.5 into S.d.0 of type time.Duration"),
        ('{"t":true}', f"json: cannot unmarshal bool {INTO}t of type time.Time"),
        ('{"t":"2020-02-30T00:00:00Z"}', 'parsing time "2020-02-30T00:00:00Z": day out of range'),
        (
            '{"t":"x\\né"}',
            'parsing time "x\\x0a\\xc3\\xa9" as "2006-01-02T15:04:05Z07:00": '
            'cannot parse "x\\x0a\\xc3\\xa9" as "2006"',
        ),
        ("[]", "json: cannot unmarshal array into Go value of type server.S"),
        ('{"i":"x"', "unexpected end of JSON input"),
        ("", "unexpected end of JSON input"),
        ('{"r":5,}', "invalid character '}' looking for beginning of object key string"),
        ('{"i":1}x', "invalid character 'x' after top-level value"),
        ("\ufeff{}", "invalid character '\\ufeff' looking for beginning of value"),
        ('{"i":01}', "invalid character '1' after object key:value pair"),
        ('{"i":-}', "invalid character '}' in numeric literal"),
        ('{"i":1e}', "invalid character '}' in numeric literal"),
        ('{"i":tru}', "invalid character '}' in literal true (expecting 'e')"),
        ('{"i" 1}', "invalid character '1' after object key"),
        ("[1 2]", "invalid character '2' after array element"),
        ("{'i':1}", "invalid character '\\'' looking for beginning of object key string"),
        ('{"name":"\x01"}', "invalid character '\\x01' in string"),
        ('{"name":"\\x"}', "invalid escape sequence `\\x` in string"),
        ('{"name":"\\u12"}', 'invalid escape sequence `\\u12"}` in string'),
        ('{"i":NaN}', "invalid character 'N' looking for beginning of value"),
        ("[" * 10_001, "exceeded max depth"),
    ],
)
def test_what_go_refuses_is_refused_in_its_words(text: str, why: str) -> None:
    with pytest.raises(GoJsonError) as refused:
        unmarshal(text.encode(), SHAPE)
    assert str(refused.value) == why


def test_each_invalid_byte_is_replaced() -> None:
    assert unmarshal(b'{"name":"a\xe2\x82b\xff"}', SHAPE) == {"name": "a\ufffd\ufffdb\ufffd"}


def test_a_request_may_be_several_values_and_knows_its_fields() -> None:
    assert read_request(b'{"i":1,"m":{"a":"b"}} {"u":2,"m":{"c":"d"}}\n', SHAPE) == {
        "i": 1,
        "m": {"a": "b", "c": "d"},
        "u": 2,
    }
    assert read_request(b" ", SHAPE) == {}
    for body, why in (
        (b'{"zz":1,"i":"x"}', 'json: unknown field "zz"'),
        (b'{"p":{"q\\u0000":1}}', 'json: unknown field "q\\x00"'),
        (b'{"i":1} x', "invalid character 'x' looking for beginning of value at offset 9"),
        (b'{"i":1', "unexpected EOF"),
    ):
        with pytest.raises(GoJsonError) as refused:
            read_request(body, SHAPE)
        assert str(refused.value) == why


def test_unknown_fields_may_be_allowed() -> None:
    assert read_request(b'{"zz":1,"I":2,"p":{"q":1}}', SHAPE, strict=False) == {"i": 2, "p": {}}
    with pytest.raises(GoJsonError, match="after top-level value"):
        read_request(b'{"i":1} x', SHAPE, strict=False)


def test_an_array_above_its_limit_is_counted_and_not_read_to_its_end() -> None:
    shape = Shape("Request", {"names": Listing(STRING, most=2)})
    assert read_request(b'{"names":["a","b"]}', shape) == {"names": ["a", "b"]}
    made = read_request(b'{"names":["a","b","c",4,5]}', shape)["names"]
    assert (made[:3], len(made)) == (["a", "b", "c"], 5)
