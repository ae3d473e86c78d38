"""/openapi.json describes exactly what is served, in a form that tools can read."""

import asyncio
import re
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from topics_api import Api

from millstream.clock import SystemClock
from millstream.http.routes import Route, Routes
from millstream.server.build import build
from millstream.server.command_line.serve_options import load_serve
from millstream.server.http_parts import routes
from millstream.topics.openapi import DETAILS, document
from millstream.topics.operation_notes import NOTES


@cache
def whole_table() -> tuple[Route, ...]:
    """Return the whole table, as the server puts it together; nothing of it is asked."""
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as directory:
        given = {"port": 0, "http_port": 0, "data_dir": Path(directory) / "data"}
        options = load_serve(given).options
        parts = build(options, loop, SystemClock())
        table = routes(options, parts.facts, parts.http.page, parts.http.gate).table
        assert parts.kept is not None
        parts.nats.stop()
        parts.timers.close()
        parts.kept.store.close()
    return table


def served(api: Api) -> list[Route]:
    return list(whole_table())


def operations(shown: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in shown["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for value in part.values():
            yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


async def test_every_served_route_is_described_and_nothing_else(api: Api) -> None:
    table = served(api)
    described = {(method, path) for method, path, _ in operations(document(table))}
    assert described == {(route.method, route.pattern) for route in table}


async def test_nothing_is_described_in_detail_that_is_not_served(api: Api) -> None:
    assert set(DETAILS) <= {(route.method, route.pattern) for route in served(api)}


async def test_every_operation_has_a_description_and_an_example_of_what_it_takes(api: Api) -> None:
    table = {(route.method, route.pattern) for route in served(api)}
    assert set(NOTES) == table
    for method, path, operation in operations(document(served(api))):
        assert len(operation["description"]) > 20, path
        assert operation["description"] != operation["summary"], path
        for each in operation.get("parameters", []):
            assert each["in"] != "path" or each["example"], path
        body = operation.get("requestBody", {}).get("content", {}).get("application/json")
        assert body is None or body["example"], (method, path)


async def test_the_document_is_served_as_it_is_made(api: Api) -> None:
    table = served(api)
    api.routes = Routes(table)
    status, shown = await api.call("GET", "/openapi.json")
    assert status == 200
    assert shown == msgspec.to_builtins(document(table))


async def test_the_document_is_well_formed(api: Api) -> None:
    shown = document(served(api))
    assert shown["openapi"] == "3.1.0"
    assert set(shown["info"]) >= {"title", "version"}
    parts = shown["components"]
    for reference in references(shown):
        _, _, kind, name = reference.split("/")
        assert name in parts[kind], reference
    for response in parts["responses"].values():
        assert response["description"]
        assert response["content"]["application/json"]["schema"]["$ref"].endswith("/Error")
    ids = [operation["operationId"] for _, _, operation in operations(shown)]
    assert len(ids) == len(set(ids))


async def test_every_operation_is_well_formed(api: Api) -> None:
    for method, path, operation in operations(document(served(api))):
        assert operation["summary"], path
        assert {"200", "101"} & set(operation["responses"]), path
        for response in operation["responses"].values():
            if "$ref" in response:
                continue
            assert response["description"]
            for media in response.get("content", {}).values():
                assert "schema" in media
        places = {(p["name"], p["in"]) for p in operation.get("parameters", [])}
        assert {name for name, place in places if place == "path"} == set(
            re.findall(r"\{(\w+)\}", path)
        )
        assert len(places) == len(operation.get("parameters", []))
        assert all(p["required"] for p in operation.get("parameters", []) if p["in"] == "path")
        assert "requestBody" not in operation or method in ("POST", "PUT")


async def test_a_write_tells_of_lines_and_of_its_key(api: Api) -> None:
    write = document(served(api))["paths"]["/v0/topics/{topic}"]["post"]
    places = {(each["name"], each["in"]) for each in write["parameters"]}
    lines = ("node", "idempotency_key", "create", "config", "disable_backpressure")
    assert places == {
        ("topic", "path"),
        ("return_seqs", "query"),
        *((name, "query") for name in lines),
        ("Idempotency-Key", "header"),
    }
    assert set(write["requestBody"]["content"]) == {
        "application/json",
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
        "application/x-jsonlines",
    }


async def test_scopes_are_told_and_open_routes_need_none(api: Api) -> None:
    paths = document(served(api))["paths"]
    assert paths["/v0/topics/{topic}"]["put"]["security"] == [{"key": ["admin"]}]
    assert paths["/v0/topics/{topic}/claim"]["post"]["security"] == [{"key": ["read", "write"]}]
    assert paths["/v0/health"]["get"]["security"] == []
    assert "401" not in paths["/v0/health"]["get"]["responses"]


async def test_answers_have_the_fields_that_the_document_promises(api: Api) -> None:
    await api.write("t", 1)
    schemas = document(served(api))["components"]["schemas"]
    _, topic = await api.call("GET", "/v0/topics/t")
    assert set(schemas["Topic"]["required"]) <= set(topic)
    assert set(topic) <= set(schemas["Topic"]["properties"])
    assert set(topic["config"]) <= set(schemas["TopicConfig"]["properties"])
    page = await api.diff("t")
    assert set(schemas["Page"]["properties"]) >= set(page) >= set(schemas["Page"]["required"])
    record = page["records"][0]
    assert set(schemas["Record"]["properties"]) >= set(record)
    _, missing = await api.call("GET", "/v0/topics/none")
    assert set(missing["error"]) <= set(schemas["Error"]["properties"]["error"]["properties"])


async def test_requests_are_described_by_the_types_that_read_them(api: Api) -> None:
    schemas = document(served(api))["components"]["schemas"]
    assert set(schemas["DiffBody"]["properties"]) >= {"from_seq", "limit", "wait_ms", "filter"}
    assert schemas["WatchBody"]["required"] == ["topics"]
