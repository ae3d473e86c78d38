"""What /healthz answers about a stream and a consumer that were asked for."""

from types import SimpleNamespace

import pytest

from millstream.monitor.health import HealthQuery, _find_missing


def accounts() -> list[SimpleNamespace]:
    stream = SimpleNamespace(name="ORDERS")
    of = {"ORDERS": [SimpleNamespace(name="worker")]}
    consumers = SimpleNamespace(of=lambda asked: of[asked.name])
    return [SimpleNamespace(account="A", streams=lambda: [stream], consumers=consumers)]


@pytest.mark.parametrize(
    ("stream", "consumer", "kind"),
    [
        ("ORDERS", "worker", None),
        ("ORDERS", "nobody", "CONSUMER"),
        ("NOTHING", "", "STREAM"),
    ],
)
def test_what_was_asked_for_must_be_there(stream: str, consumer: str, kind: str | None) -> None:
    query = HealthQuery(account="A", stream=stream, consumer=consumer)
    problem = _find_missing(accounts(), query)
    assert (problem.type if problem is not None else None) == kind


def test_an_account_that_is_not_there_is_named() -> None:
    problem = _find_missing(accounts(), HealthQuery(account="B"))
    assert problem is not None
    assert (problem.code, problem.type) == (404, "ACCOUNT")
