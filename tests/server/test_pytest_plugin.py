"""The fixtures that users' tests get, used as they would."""

import urllib.request

import nats
from millstream.pytest_plugin import MillstreamServer


async def test_a_server_of_one_s_own_keeps_acknowledged_records_through_a_kill(
    millstream_server: MillstreamServer,
) -> None:
    client = await nats.connect(millstream_server.nats_url)
    stream = client.jetstream()
    await stream.add_stream(name="ORDERS", subjects=["orders.>"])
    assert (await stream.publish("orders.new", b"1")).seq == 1
    await client.close()
    millstream_server.kill()
    millstream_server.start()
    client = await nats.connect(millstream_server.nats_url)
    assert (await client.jetstream().get_msg("ORDERS", 1)).data == b"1"
    await client.close()


def test_the_session_s_server_answers_over_http(
    millstream_session_server: MillstreamServer,
) -> None:
    with urllib.request.urlopen(f"{millstream_session_server.http_url}/healthz") as answer:
        assert answer.status == 200
