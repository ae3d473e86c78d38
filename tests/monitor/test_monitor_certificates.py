"""Both servers show the certificate of a client in the same words."""

import asyncio
import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

import nats
from support.certificates import Authority
from support.peers import free_port, nats_server_path, running

SUBJECT = [("C", "US"), ("O", "Mill"), ("OU", "stones"), ("CN", "derek")]


def served(command: list[str], authority: Authority, directory: Path) -> dict[str, Any]:
    """Start a server, connect with a certificate, and return how /connz shows the client."""
    directory.mkdir()
    issued, mine = authority.server(), authority.issue("derek", SUBJECT)
    port, http_port = free_port(), free_port()
    config = directory / "server.conf"
    config.write_text(
        f"listen: 127.0.0.1:{port}\nhttp: 127.0.0.1:{http_port}\ntls {{\n"
        f'cert_file: "{issued.cert_file}"\nkey_file: "{issued.key_file}"\n'
        f'ca_file: "{authority.ca_file}"\nverify: true }}\n'
    )

    async def shown(query: str) -> dict[str, Any]:
        context = authority.trusting(mine)
        client = await nats.connect(f"tls://127.0.0.1:{port}", tls=context, name=f"derek{query}")
        url = f"http://127.0.0.1:{http_port}/connz{query}"
        answer = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read())
        await client.close()
        # Who asked whether the server is there, or came before, may not have left yet.
        listed: list[dict[str, Any]] = json.loads(answer)["connections"]
        return next(each for each in listed if each.get("name") == f"derek{query}")

    with running(command[0], [*command, "-c", str(config)], port, directory, http_port):
        assert "tls_peer_certs" not in asyncio.run(shown(""))
        found = asyncio.run(shown("?auth=1"))
    certificate = found["tls_peer_certs"][0]  # nats-server shows the chain that came with it too
    digests = {name: len(certificate.pop(name)) for name in ("spki_sha256", "cert_sha256")}
    return {**certificate, **digests}


def test_a_clients_certificate_is_shown_to_who_asks_for_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    ours = [sys.executable, "-m", "millstream", "nats-server"]
    assert (
        served(ours, authority, tmp_path / "ours")
        == served([nats_server_path()], authority, tmp_path / "theirs")
        == {"subject": "CN=derek,OU=stones,O=Mill,C=US", "spki_sha256": 64, "cert_sha256": 64}
    )
