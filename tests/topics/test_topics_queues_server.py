"""Queues on the whole server: the same records at every door, and leases that outlive a kill."""

import http.client
from pathlib import Path
from typing import Any

import msgspec
import pytest

import nats
from support.broker import millstream
from support.peers import Peer


def call(peer: Peer, method: str, path: str, body: object = None) -> Any:
    client = http.client.HTTPConnection(peer.host, peer.http_port, timeout=10)
    try:
        raw = None if body is None else msgspec.json.encode(body)
        client.request(method, path, raw, {"Content-Type": "application/json"} if raw else {})
        response = client.getresponse()
        answer = msgspec.json.decode(response.read())
        assert response.status in (200, 201), answer
        return answer
    finally:
        client.close()


def counters(peer: Peer) -> dict[str, int]:
    found: dict[str, int] = call(peer, "GET", "/v0/topics/JOBS")["queue"]
    return found


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped"])
async def test_jetstream_and_http_share_a_queue_and_its_leases_outlive_the_process(
    tmp_path: Path, kill: bool
) -> None:
    config = {"type": "queue", "leases_durable": True, "subjects": ["jobs.>"]}
    with millstream(data_dir=tmp_path / "data") as peer:
        call(peer, "PUT", "/v0/topics/JOBS", config)
        client = await nats.connect(peer.url)
        stream = client.jetstream()
        for number in range(4):
            await stream.publish("jobs.new", b'{"n":%d}' % number)
        claimed = call(peer, "POST", "/v0/topics/JOBS/claim", {"node": "w", "max": 3})["claimed"]
        assert [(job["$subject"], job["data"]["n"]) for job in claimed] == [
            ("jobs.new", 0),
            ("jobs.new", 1),
            ("jobs.new", 2),
        ]
        call(peer, "POST", "/v0/topics/JOBS/ack", {"node": "w", "seqs": [1]})
        reader = await stream.pull_subscribe("jobs.>", durable="audit")
        seen = [message.metadata.sequence.stream for message in await reader.fetch(3, timeout=5)]
        assert seen == [2, 3, 4]  # leased or not, whatever is there
        await client.close()
        if kill:
            peer.process.kill()
            peer.process.wait(10)
    with millstream(data_dir=tmp_path / "data") as peer:
        assert counters(peer) == {"ready": 1, "in_flight": 2, "dead_lettered": 0}
        token = claimed[1]["lease_id"]
        body = {"node": "w", "seqs": [2], "lease_ids": [token]}
        assert call(peer, "POST", "/v0/topics/JOBS/ack", body)["acked"] == 1


def test_an_image_of_a_foreign_page_takes_no_job_out_of_a_queue() -> None:
    as_image = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "no-cors",
        "Sec-Fetch-Dest": "image",
    }
    with millstream() as peer:
        config = {"type": "queue", "max_deliveries": 1, "dead_letter": "dead"}
        call(peer, "PUT", "/v0/topics/JOBS", config)
        call(peer, "POST", "/v0/topics/JOBS", {"records": [{"data": "job"}]})
        client = http.client.HTTPConnection(peer.host, peer.http_port, timeout=10)
        try:
            client.request("GET", "/v0/topics/JOBS/work?node=evil&max=10", headers=as_image)
            response = client.getresponse()
            assert response.status == 403
            assert msgspec.json.decode(response.read())["error"]["code"] == "forbidden"
        finally:
            client.close()
        (job,) = call(peer, "POST", "/v0/topics/JOBS/claim", {"node": "w"})["claimed"]
        assert (job["data"], job["deliveries"]) == ("job", 1)
