"""Requests made from /openapi.json: no server error, no status or body that it does not declare."""

import random
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import requests
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from support import scale
from support.broker import millstream

pytestmark = [pytest.mark.timeout(3600)]

CASES = scale.count(400, 6000)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
STREAMS = (
    "/tail",
    "/work",
    "/v0/watch/{wid}",
    "/v0/feed",
)  # these answer for as long as one listens
NAMES = ("log", "queue", "full", "dead")


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with millstream() as peer:
        url = f"http://127.0.0.1:{peer.http_port}"
        furnish(url)
        yield url


def furnish(url: str) -> None:
    """Have some topics of each kind there, so that requests meet more than 404."""
    topics = f"{url}/v0/topics"
    requests.put(f"{topics}/queue", json={"type": "queue", "dead_letter": "dead"}, timeout=10)
    requests.put(f"{topics}/full", json={"cap_records": 2, "discard": "reject"}, timeout=10)
    for name in ("log", "queue", "full"):
        requests.post(f"{topics}/{name}", json={"records": [{"data": 1}] * 2}, timeout=10)


def tame(case: Any, luck: random.Random) -> None:
    """Aim most requests at what is there, and let none wait for long."""
    for parameter in ("topic", "router", "name"):
        if parameter in (case.path_parameters or {}) and luck.random() < 0.8:
            case.path_parameters[parameter] = luck.choice(NAMES)
    if isinstance(case.body, dict) and isinstance(case.body.get("wait_ms"), int):
        case.body["wait_ms"] = min(case.body["wait_ms"], 3)


def ask(case: Any, operation: Any) -> None:
    if not operation.path.endswith(STREAMS):
        case.call_and_validate(checks=CHECKS, timeout=30)
        return
    given = case.as_transport_kwargs(base_url=operation.schema.get_base_url())
    given.pop("cookies", None)
    with requests.request(**given, stream=True, timeout=30) as response:
        declared = set(operation.definition.raw["responses"])
        assert str(response.status_code) in declared, (given, response.status_code)
        if response.status_code == 200:
            assert response.headers["content-type"].startswith("text/event-stream")


def probe(operation: Any, requests_each: int, luck: random.Random) -> int:
    """Send requests to one operation; returns how many."""
    asked = 0

    @hypothesis.settings(
        max_examples=requests_each,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    @hypothesis.given(case=operation.as_strategy())
    def once(case: Any) -> None:
        nonlocal asked
        asked += 1
        tame(case, luck)
        ask(case, operation)

    once()
    return asked


def test_every_operation_answers_as_it_is_described(site: str) -> None:
    schema = schemathesis.openapi.from_url(f"{site}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    operations = [each for each in operations if each.path != "/v0/ws"]
    asked, luck, wrong = 0, random.Random(7), []
    for operation in operations:
        try:
            asked += probe(operation, -(-CASES // len(operations)), luck)
        except (AssertionError, BaseExceptionGroup) as error:
            wrong.append(f"{operation.method} {operation.path}: {error}")
        furnish(site)
    print(f"{asked} requests over {len(operations)} operations")
    assert not wrong, "\n\n".join(wrong)
    assert asked >= len(operations) * 2
    assert requests.get(f"{site}/v0/health", timeout=10).status_code == 200
