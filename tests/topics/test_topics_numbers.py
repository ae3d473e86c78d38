"""Numbers in a query that are longer than any number: refused like other garbage, never a 500."""

import json
from pathlib import Path

import pytest
from topics_server import asked

from millstream.http.number import whole_number
from millstream.http.response import Response

ENDLESS = "9" * 5000
ZEROS = "0" * 5000
PLACES = [
    ("GET", "/v0/topics/t/tail?from_seq="),
    ("GET", "/v0/topics/t/tail?limit="),
    ("GET", "/v0/topics/t/tail?heartbeat_ms="),
    ("GET", "/v0/topics/t/plan?from_seq="),
    ("GET", "/v0/topics/t/frames?from_seq="),
    ("GET", "/v0/topics/t/frames?to_seq="),
    ("GET", "/v0/topics/t/frames?max_bytes="),
    ("POST", "/v0/topics/t/stage?sink=s&id=1&batch="),
    ("POST", "/v0/topics/t/stage?sink=s&id=1&batch=1&at="),
    ("GET", "/v0/topics/q/work?node=w&max="),
    ("GET", "/v0/topics/q/work?node=w&lease_ms="),
    ("GET", "/connz?cid="),
    ("GET", "/connz?limit="),
    ("GET", "/connz?offset=-"),
    ("GET", "/subsz?limit="),
    ("GET", "/jsz?offset="),
]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("007", 7),
        (ZEROS, 0),
        (ZEROS + "255", 255),
        ("255", 255),
        ("256", None),
        (ENDLESS, None),
        ("", None),
        ("-1", None),
        ("+1", None),
        (" 1", None),
        ("1_0", None),
        ("٣", None),
    ],
)
def test_a_whole_number_is_plain_digits_up_to_the_most(text: str, number: int | None) -> None:
    assert whole_number(text, 255) == number


async def test_a_number_of_thousands_of_digits_is_400_in_every_query(tmp_path: Path) -> None:
    async with asked(tmp_path) as door:
        await door.send("PUT", "/v0/topics/t")
        await door.send("PUT", "/v0/topics/q", body={"type": "queue"})
        for method, target in PLACES:
            answer = await door.send(method, target + ENDLESS)
            assert isinstance(answer, Response), target
            assert answer.status == 400, (target, answer)
            assert json.loads(answer.body)["error"]["code"] == "invalid_request"
            assert await door.status(method, target + ZEROS) in (200, 400), target


@pytest.mark.parametrize("path", ["topics", "routers"])
async def test_a_page_size_of_thousands_of_digits_means_100(tmp_path: Path, path: str) -> None:
    async with asked(tmp_path) as door:
        for number in range(101):
            await door.send("PUT", f"/v0/topics/t{number}")
            if path == "routers":
                body = {"source": f"t{number}", "dest": f"d{number}"}
                await door.send("PUT", f"/v0/routers/r{number}", body=body)
        for size in (ENDLESS, "-" + ENDLESS, ""):
            listed = await door.json("GET", f"/v0/{path}?page_size={size}")
            assert len(listed[path]) == 100


async def test_an_object_that_only_looks_like_bytes_may_hold_any_number(tmp_path: Path) -> None:
    async with asked(tmp_path) as door:
        await door.send("PUT", "/v0/topics/t")
        for before, after, status in (
            ('{"$base64":', "}", 400),
            ('{"$base64":', ',"more":1}', 200),
            ('{"$base64ed":', "}", 200),
        ):
            body = f'{{"records":[{{"data":{before}{ENDLESS}{after}}}]}}'.encode()
            assert await door.status("POST", "/v0/topics/t", raw=body) == status, (before, after)
