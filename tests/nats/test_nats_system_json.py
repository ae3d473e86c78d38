"""Options of system requests are read as nats-server reads them, and refused in its words."""

import json
from itertools import product
from pathlib import Path
from typing import Any

from configured_pair import Place, both
from nats.errors import Error

CONFIG = """
accounts { SYS { users: [{user: sys, password: secret}] } }
system_account: SYS
"""
BODIES = (
    *(b"", b" ", b"null", b"{", b"[]", b"5", b'{"bogus":1}', b'{"server_name":5}', b"{}x"),
    *(b'{"offset":"x"}', b'{"Limit":1.5,"LIMIT":null}', b'{"state":"x"}', b'{"sort":5}'),
    *(b'{"SERVER_NAME":"nobody"}', b'{"tags":[null]}', b'{"cid":-1}', b'{"cid":null}'),
)
QUESTIONS = ("STATSZ", "VARZ", "CONNZ", "SUBSZ", "HEALTHZ", "IDZ", "ROUTEZ", "KICK", "RELOAD")


async def test_options_of_system_requests_are_read_as_the_reference_reads_them(
    tmp_path: Path,
) -> None:
    async def scenario(place: Place) -> list[Any]:
        client = await place.client("sys")
        me = (client._server_info or {})["server_id"]
        seen: list[Any] = []
        for what, body in product(QUESTIONS, BODIES):
            try:
                answer = await client.request(f"$SYS.REQ.SERVER.{me}.{what}", body, timeout=0.3)
                told = json.loads(answer.data)
                seen.append((what, body, told.get("error", "answered")))
            except Error:  # nobody answers
                seen.append((what, body, "silence"))
        return seen

    await both(tmp_path, CONFIG, scenario)
