"""Streams that take no writes or deletions say so over HTTP: 409 and the reason."""

from typing import Any

import msgspec
import pytest
from topics_api import Api

from millstream.streams.config.config import StreamConfig

WRITE = {"records": [{"data": 1}]}


async def closed(api: Api, **fields: Any) -> None:
    """Leave a stream ``S`` with one record, closed as the fields say."""
    wire = {"name": "S", "subjects": ["s"]}
    await api.catalog.create(StreamConfig.from_request(wire))
    await api.write("S", "kept")
    config = api.stream("S").config
    await api.catalog.update(msgspec.structs.replace(config, **fields))


async def refusal(api: Api, method: str, target: str, body: object = None) -> tuple[int, str, str]:
    status, answer = await api.call(method, target, body)
    return status, answer["error"]["code"], answer["error"]["message"]


BY_POSITION, BY_TAG = {"before_seq": 2}, {"match": "t"}


async def test_a_sealed_stream_refuses_writes_and_deletions(api: Api):
    await closed(api, sealed=True, deny_delete=True, deny_purge=True, discard="new")
    for target, body in (("", WRITE), ("/delete", BY_POSITION), ("/delete", BY_TAG)):
        status, _, why = await refusal(api, "POST", f"/v0/topics/S{target}", body)
        assert status == 409, (target, why)
        assert "sealed" in why
    assert api.stream("S").state().messages == 1


@pytest.mark.parametrize(
    ("denied", "body", "reason"),
    [("deny_purge", BY_POSITION, "purge"), ("deny_delete", BY_TAG, "delete")],
)
async def test_denied_deletions_are_refused_and_writes_are_not(
    api: Api, denied: str, body: object, reason: str
):
    await closed(api, **{denied: True})
    status, code, why = await refusal(api, "POST", "/v0/topics/S/delete", body)
    assert (status, code) == (409, "operation_denied")
    assert f"{reason} not permitted" in why
    await api.write("S", "more")
    assert api.stream("S").state().messages == 2


async def test_a_mirror_refuses_writes_and_deletions(api: Api):
    await api.catalog.create(StreamConfig.from_request({"name": "O", "subjects": ["o"]}))
    mirror = {"name": "S", "mirror": {"name": "O"}}
    await api.catalog.create(StreamConfig.from_request(mirror))
    for target, body in (("", WRITE), ("/delete", BY_POSITION), ("/delete", BY_TAG)):
        status, code, why = await refusal(api, "POST", f"/v0/topics/S{target}", body)
        assert (status, code) == (409, "operation_denied"), (target, why)
        assert "mirror" in why
