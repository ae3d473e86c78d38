"""Ways around a denied subject, tried at a whole server: snapshots and renamed copies."""

import asyncio
from pathlib import Path

from nats.errors import Error

import nats
from support.jetstream_api import api
from support.server_process import started

CONFIG = """
jetstream {{ store_dir: "{directory}" }}
authorization {{ users = [
  {{ user: all, password: p }}
  {{ user: some, password: p, permissions: {{ subscribe: {{ deny: ["log.secret"] }} }} }}
] }}
"""


async def _tried(url: str, user: str) -> list[bool]:
    """Return which of the requests were carried out."""

    async def told(_: Exception) -> None:
        """Expect to be refused."""

    client = await nats.connect(url, user=user, password="p", error_cb=told)
    done = []
    out = {"republish": {"src": ">", "dest": "out.>"}}
    for config in ({"subjects": ["open"]}, {"subjects": ["open"], **out}, {"subjects": ["log.>"]}):
        made = await api(client, "STREAM.CREATE.S", {"name": "S", **config})
        done.append("error" not in made)
        changed = await api(client, "STREAM.UPDATE.S", {"name": "S", "subjects": ["log.>"], **out})
        done.append("error" not in changed)
        asked = b'{"deliver_subject":"%s"}' % client.new_inbox().encode()
        try:
            await client.request("$JS.API.STREAM.SNAPSHOT.S", asked, timeout=1)
            done.append(True)
        except Error:
            done.append(False)
        await api(client, "STREAM.DELETE.S")
    await client.close()
    return done


def test_a_denied_subject_stays_unheard(tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    config.write_text(CONFIG.format(directory=tmp_path / "data"))
    with started("-c", str(config)) as server:
        url = server.ready()
        assert asyncio.run(_tried(url, "all")) == [True] * 9
        expected = [True, False, True, True, False, True, True, False, False]
        assert asyncio.run(_tried(url, "some")) == expected
