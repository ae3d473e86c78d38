"""The ``limits`` block of a configuration: held to, and shown, as at the reference."""

import json
from pathlib import Path
from typing import Any

from configured_pair import Place, both

CONFIG = """
jetstream: {
  store_dir: "DIRECTORY"
  limits: {
    max_ack_pending: 500, max_request_batch: 100, default_max_consumers: 3
    duplicate_window: "1m", max_ha_assets: 7
    batch: { max_inflight_per_stream: 3, max_inflight_total: 9, max_msgs: 10, timeout: "2s" }
  }
}
"""
MINUTE = 60 * 10**9


def consumer(**config: Any) -> tuple[str, Any]:
    named = {"name": "c", "ack_policy": "explicit", **config}
    return f"CONSUMER.CREATE.S.{named['name']}", {"stream_name": "S", "config": named}


def consumer_of(stream: str, name: str) -> tuple[str, Any]:
    named = {"name": name, "ack_policy": "explicit"}
    return f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": named}


REQUESTS = [
    ("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]}),
    ("STREAM.CREATE.T", {"name": "T", "subjects": ["t"], "max_age": MINUTE // 2}),
    ("STREAM.CREATE.U", {"name": "U", "subjects": ["u"], "duplicate_window": 2 * MINUTE}),
    ("STREAM.UPDATE.S", {"name": "S", "subjects": ["s"], "description": "words"}),
    ("STREAM.UPDATE.S", {"name": "S", "subjects": ["s"], "duplicate_window": 2 * MINUTE}),
    consumer(),
    consumer(max_batch=101),
    consumer(max_ack_pending=501),
    consumer(max_ack_pending=500, max_batch=7),
    consumer(name="c", deliver_subject="d", max_ack_pending=501),
    *(consumer(name=name) for name in ("d", "e", "f")),
    ("STREAM.CREATE.M", {"name": "M", "subjects": ["m"], "max_consumers": 1}),
    *(consumer_of("M", name) for name in ("d", "e")),
    ("CONSUMER.CREATE.S.n", {"stream_name": "S", "config": {"name": "n", "ack_policy": "none"}}),
]


def plain(answer: Any) -> Any:
    """Return what the limits decide."""
    config = answer.get("config", {})
    kept = ("duplicate_window", "max_ack_pending", "max_batch")
    return answer.get("error"), {key: config[key] for key in kept if key in config}


async def scenario(place: Place) -> list[Any]:
    client, seen = await place.client(), []
    for subject, body in REQUESTS:
        asked = json.dumps(body).encode()
        answer = await client.request(f"$JS.API.{subject}", asked, timeout=5)
        seen.append((subject, body, plain(json.loads(answer.data))))
    for page in ("jsz", "varz"):
        found = place.page(page)
        limits = found.get("jetstream", found)["limits"]
        seen.append((page, limits))
    return seen


async def test_limits_of_the_server_bound_and_fill_requests_and_are_shown(tmp_path: Path):
    seen = await both(tmp_path, CONFIG, scenario)
    assert seen[-1][1]["max_ack_pending"] == 500


STORES = 'jetstream: { store_dir: "DIRECTORY", max_file_store: 2000, max_memory_store: 1000 }'


async def test_what_all_streams_reserve_and_hold_is_bounded_by_the_server(tmp_path: Path):
    async def scenario(place: Place) -> list[Any]:
        client = await place.client()

        async def ask(subject: str, body: Any) -> Any:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            return json.loads((await client.request(subject, data, timeout=10)).data)

        seen: list[Any] = []
        for name, more in (
            ("A", {"max_bytes": 3000}),
            ("M", {"max_bytes": 1500, "storage": "memory"}),
            ("B", {"max_bytes": 1500}),
            ("C", {"max_bytes": 600}),
            ("D", {"allow_atomic": True}),
            ("E", {"storage": "memory"}),
        ):
            config = {"name": name, "subjects": [name.lower()], **more}
            seen.append((await ask(f"$JS.API.STREAM.CREATE.{name}", config)).get("error"))
        seen += [await ask(subject, b"x" * 900) for subject in "bbbdddeee"]
        larger = {"name": "B", "subjects": ["b"], "max_bytes": 2500}
        seen.append((await ask("$JS.API.STREAM.UPDATE.B", larger)).get("error"))
        await ask("$JS.API.STREAM.PURGE.B", b"")
        return [*seen, await ask("d", b"x")]

    seen = await both(tmp_path, STORES, scenario)
    codes = [one["error"]["err_code"] for one in seen[6:] if one and "error" in one]
    assert codes == [10023, 10023]


LENIENT = 'jetstream { store_dir: "DIRECTORY", strict: false }\n'
UNKNOWN = {"future": {"is": ["bright"]}}
SOURCE = {"name": "S", "subject_transforms": [{"src": "s", "dest": "t", **UNKNOWN}], **UNKNOWN}
WITH_UNKNOWN_FIELDS = [
    ("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "consumer_limits": UNKNOWN, **UNKNOWN}),
    ("STREAM.CREATE.T", {"name": "T", "sources": [SOURCE]}),
    ("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "S", **UNKNOWN}}),
    ("STREAM.UPDATE.S", {"name": "S", "subjects": ["s"], "description": "words", **UNKNOWN}),
    ("STREAM.UPDATE.S", {"name": "S", "subjects": "s", **UNKNOWN}),
    ("STREAM.CREATE.U", {"name": "U", "retention": "eternal", **UNKNOWN}),
    ("STREAM.INFO.S", UNKNOWN),
    ("STREAM.NAMES", UNKNOWN),
    ("STREAM.PURGE.S", {"seq": 1, **UNKNOWN}),
    ("STREAM.MSG.GET.S", {"seq": 1, **UNKNOWN}),
    ("STREAM.MSG.DELETE.S", {"seq": 1, **UNKNOWN}),
    consumer(**UNKNOWN),
    ("CONSUMER.CREATE.S.d", {"stream_name": "S", "config": {"name": "d"}, **UNKNOWN}),
    ("CONSUMER.PAUSE.S.c", UNKNOWN),
    ("CONSUMER.LIST.S", UNKNOWN),
]


async def unknown_fields(place: Place) -> list[Any]:
    client, seen = await place.client(), []
    for subject, body in WITH_UNKNOWN_FIELDS:
        answer = await client.request(f"$JS.API.{subject}", json.dumps(body).encode(), timeout=5)
        error = json.loads(answer.data).get("error", {})
        seen.append((subject, error.get("err_code")))
    return seen


async def test_unknown_fields_are_left_alone_where_the_configuration_is_not_strict(tmp_path: Path):
    seen = await both(tmp_path, LENIENT, unknown_fields)
    assert [code for _, code in seen[:6]] == [None, None, None, None, 10025, 10025]


async def test_unknown_fields_are_refused_as_the_reference_refuses_them(tmp_path: Path):
    seen = await both(tmp_path, LENIENT.replace("false", "true"), unknown_fields)
    assert {code for _, code in seen} >= {10025}


async def acknowledged(place: Place) -> list[Any]:
    client = await place.client()
    asked = json.dumps({"name": "S", "subjects": ["s"]}).encode()
    await client.request("$JS.API.STREAM.CREATE.S", asked, timeout=5)
    headers = {"Nats-Msg-Id": "1"}
    acks = [await client.request("s", b"x", timeout=5, headers=headers) for _ in range(2)]
    return [json.loads(ack.data) for ack in acks]


async def test_an_ack_names_the_domain(tmp_path: Path):
    config = 'jetstream: { store_dir: "DIRECTORY", domain: hub }'
    assert (await both(tmp_path, config, acknowledged))[0]["domain"] == "hub"
