"""A tenant's disk quota holds at every door, for whatever the tenant makes of it."""

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from test_nats_jwt_limits import NO_LIMIT, Speaker

from support.jwt_makers import Operator, UserHolder
from support.peers import Peer, free_port, running, scratch_directory

OPERATOR = Operator()
QUOTA = 3000
_BYTES = NO_LIMIT | {"disk_storage": QUOTA}


class Tenant:
    """A user of an account with a quota, at both doors."""

    def __init__(self, peer: Peer, token: str) -> None:
        self._http = f"http://127.0.0.1:{peer.http_port}/v0/"
        self._nats, self._token = peer.url, token

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        asked = urllib.request.Request(
            self._http + path,
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(asked, timeout=10) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def write(self, topic: str, size: int) -> int:
        return self.call("POST", f"topics/{topic}", {"records": [{"data": "x" * size}]})[0]

    def ask(self, subject: str, body: Any = "") -> Any:
        with Speaker(self._nats, self._token) as client:
            return client.ask(subject, body)

    def stored(self) -> int:
        return int(self.ask("$JS.API.INFO")["storage"])


@pytest.fixture
def tenant(request: pytest.FixtureRequest) -> Iterator[Tenant]:
    limits = _BYTES | getattr(request, "param", {})
    account = OPERATOR.account("tenant", limits=limits)
    user = UserHolder(account, "bob", 0, {"bearer_token": True})
    with scratch_directory("millstream") as directory:
        port, http = free_port(), free_port()
        conf = directory / "server.conf"
        conf.write_text(
            f'listen: 127.0.0.1:{port}\njetstream {{ store_dir: "{directory / "data"}" }}\n'
            f"operator: {OPERATOR.token}\nresolver: MEMORY\n"
            f"resolver_preload {{ {account.public}: {account.token} }}\n"
        )
        command = [sys.executable, "-m", "millstream", "serve", "-c", str(conf)]
        command += ["--http-port", str(http)]
        with running("millstream", command, port, directory, http) as peer:
            yield Tenant(peer, user.token)


def test_writes_beyond_the_quota_are_refused_at_both_doors(tenant: Tenant) -> None:
    assert tenant.call("PUT", "topics/notes", {})[0] == 201
    assert [tenant.write("notes", 900) for _ in range(4)] == [200, 200, 200, 429]
    status, told = tenant.call("POST", "topics/notes", {"records": [{"data": "x" * 900}]})
    assert (status, told["error"]["code"]) == (429, "throttled")
    assert told["error"]["message"] == "resource limits exceeded for account"
    created = tenant.ask("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    assert "error" not in created
    assert tenant.ask("s", "x" * 900)["error"]["err_code"] == 10002
    assert tenant.stored() <= QUOTA
    assert tenant.call("DELETE", "topics/notes")[0] == 200
    assert "error" not in tenant.ask("s", "x" * 900)


def test_a_topic_that_jetstream_cannot_name_counts_too(tenant: Tenant) -> None:
    assert tenant.call("PUT", "topics/a.b", {})[0] == 201
    assert [tenant.write("a.b", 900) for _ in range(4)] == [200, 200, 200, 429]
    tenant.ask("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    assert tenant.ask("s", "x" * 900)["error"]["err_code"] == 10002


def test_a_batch_is_taken_whole_or_not_at_all(tenant: Tenant) -> None:
    tenant.call("PUT", "topics/notes", {})
    many = {"records": [{"data": "x" * 900}] * 4}
    assert tenant.call("POST", "topics/notes", many)[0] == 429
    assert tenant.stored() == 0


def test_copies_by_a_router_and_a_source_keep_to_it(tenant: Tenant) -> None:
    tenant.call("PUT", "topics/notes", {})
    tenant.ask("$JS.API.STREAM.CREATE.COPY", {"name": "COPY", "sources": [{"name": "notes"}]})
    assert tenant.call("PUT", "routers/r", {"source": "notes", "dest": "more"})[0] == 201
    for _ in range(3):
        tenant.write("notes", 900)
    for name in ("more", "notes"):
        tenant.call("GET", f"topics/{name}")  # routers are up to their source then
    assert 1800 < tenant.stored() <= QUOTA


@pytest.mark.parametrize("tenant", [{"streams": 1}], indirect=True)
def test_topics_count_as_streams(tenant: Tenant) -> None:
    assert tenant.call("PUT", "topics/one", {})[0] == 201
    status, told = tenant.call("PUT", "topics/two", {})
    assert (status, told["error"]["detail"]) == (429, {"limit": "max_streams", "max": 1})
    assert tenant.write("three", 1) == 429  # nor is it made by a write
    made = tenant.ask("$JS.API.STREAM.CREATE.S", {"name": "S"})
    assert made["error"]["err_code"] == 10027


@pytest.mark.parametrize("tenant", [{"max_bytes_required": True}], indirect=True)
def test_a_topic_must_be_bounded_where_the_operator_asks_for_it(tenant: Tenant) -> None:
    assert tenant.call("PUT", "topics/one", {})[0] == 429
    assert tenant.call("PUT", "topics/one", {"cap_bytes": 1000})[0] == 201
