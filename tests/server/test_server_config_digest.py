"""The fingerprint of a configuration file is the one that nats-server computes."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from millstream.server.command_line.options_file import read_file
from support.peers import nats_server_path

FILES = [
    "port: 4333",
    'port = 4333 # the port\nhost: "127.0.0.1"\n',
    'host: "127.0.0.1"; port: 4333',
    'max_payload: 2MB, max_pending: 64m\nping_interval: 30s; write_deadline: "2s"',
    "jetstream { max_mem: 1G, max_file: 10g, limits { max_ack_pending: 7 } }",
    'server_name: "a<b>&\\"c\\"é"\nserver_tags: ["x:1", \'y\']',
    'PASS: "s3cret"\nauthorization { users: [{user: a, password: $PASS}, {user: b, password: b}] }',
    'accounts { A { users [{user: a, password: a}], exports: [{service: "q.>"}] }, B: {} }',
    "server_metadata { a: b, c: d }\nauthorization { timeout: 1.5, token: t }",
    "max_connections: 10\nmax_connections: 20",
    "include 'other.conf'\nport: 1234",
    "server_name: $DIGEST_NAME",
]


@pytest.mark.parametrize("text", FILES)
def test_the_digest_is_the_reference_s(text: str, tmp_path: Path):
    file = tmp_path / "server.conf"
    file.write_text(text)
    (tmp_path / "other.conf").write_text("lame_duck_duration: 40s\n")
    environment = {**os.environ, "DIGEST_NAME": "from-outside"}
    command = [nats_server_path(), "-t", "-c", str(file)]
    told = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    found = re.search(r"sha256:[0-9a-f]{64}", told.stdout + told.stderr)
    assert found is not None, told
    assert read_file(str(file), environment, None).options.config_digest == found[0]
