"""Every operation of the API refuses a request that a page of another site makes."""

import http.client
import json
import re
from collections.abc import Iterator

import pytest

from support.broker import millstream
from support.peers import Peer

FOREIGN = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Peer]:
    with millstream() as peer:
        yield peer


def answer(broker: Peer, method: str, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
    link = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=30)
    try:
        body = b"{}" if method in ("POST", "PUT", "PATCH") else None
        link.request(method, path, body, {"content-type": "application/json", **headers})
        response = link.getresponse()
        return response.status, response.read(2000)
    finally:
        link.close()


def operations(broker: Peer) -> list[tuple[str, str]]:
    link = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=30)
    link.request("GET", "/openapi.json")
    described = json.loads(link.getresponse().read())
    link.close()
    return [
        (method.upper(), re.sub(r"\{\w+\}", "victim", path))
        for path, methods in described["paths"].items()
        for method in methods
        if method in ("get", "put", "post", "delete", "patch")
    ]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_each_operation_refuses_a_foreign_page(broker: Peer, headers: dict[str, str]) -> None:
    answer(broker, "PUT", "/v0/topics/victim", {})
    asked = operations(broker)
    assert len(asked) >= 60
    taken = [
        (method, path, status)
        for method, path in asked
        if (status := answer(broker, method, path, headers)[0]) != 403
    ]
    print(f"{len(asked)} operations, {len(asked) - len(taken)} refused")
    assert taken == []
    assert answer(broker, "GET", "/v0/topics/victim", {})[0] == 200  # nothing was deleted
