"""One configuration, one conversation, two servers: ours and the real nats-server."""

import contextlib
import json
import re
import socket
from collections.abc import Iterator, Sequence

from guarded_sessions import GuardedSessions

from millstream.nats.session import NatsLimits
from millstream.server.access.identity import identities_of
from millstream.server.conf.document import from_block
from millstream.server.conf.syntax import parse
from support.peers import nats_server

QUIET = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
WAIT = 5.0
Step = tuple[str, bytes]


class Conversation:
    """Clients by the name of their user; what each of them heard, in order."""

    def __init__(self) -> None:
        self.heard: dict[str, bytes] = {}

    def note(self, name: str, data: bytes) -> None:
        self.heard[name] = self.heard.get(name, b"") + data


def connect_line(name: str) -> bytes:
    user = name.partition("#")[0]  # alice#2 is another connection of alice
    return b"CONNECT " + json.dumps({**QUIET, "user": user, "pass": "secret"}).encode() + b"\r\n"


def ours(config: str, steps: Sequence[Step], limits: NatsLimits | None = None) -> dict[str, bytes]:
    """Return what our clients hear."""
    known = identities_of(from_block(parse(config)).options)
    serving = GuardedSessions(known.credentials, known.accounts, limits)
    said = Conversation()
    clients = {}
    try:
        for name, data in steps:
            if name not in clients:
                clients[name] = serving.client()
                said.note(name, clients[name].tell(connect_line(name)))
            said.note(name, clients[name].tell(data))
            for other, client in clients.items():
                said.note(other, client.said())
    finally:
        serving.close()
    return {name: _plain(data) for name, data in said.heard.items()}


def theirs(config: str, steps: Sequence[Step]) -> dict[str, bytes]:
    """Return what clients of nats-server hear."""
    with nats_server(config=config) as peer, contextlib.ExitStack() as stack:
        return conversation(peer.port, steps, stack)


def conversation(port: int, steps: Sequence[Step], stack: contextlib.ExitStack) -> dict[str, bytes]:
    said = Conversation()
    clients: dict[str, socket.socket] = {}
    for name, data in steps:
        if name not in clients:
            clients[name] = stack.enter_context(socket.create_connection(("127.0.0.1", port), WAIT))
            said.note(name, _ask(clients[name], connect_line(name)))
        said.note(name, _ask(clients[name], data))
        for other, client in clients.items():
            said.note(other, _ask(client, b""))
    return {name: _plain(data) for name, data in said.heard.items()}


def _ask(client: socket.socket, data: bytes) -> bytes:
    """Send and read until the PONG behind it, or until the server hangs up."""
    heard = b""
    try:
        client.sendall(data + b"PING\r\n")
        while not heard.endswith(b"PONG\r\n"):
            more = client.recv(1 << 16)
            if not more:
                return heard + b"<closed>"
            heard += more
    except (ConnectionResetError, BrokenPipeError):
        return heard + b"<closed>"
    return heard


def _plain(heard: bytes) -> bytes:
    """Drop greetings and pongs, and what is random or names a server."""
    heard = re.sub(rb"INFO [^\r]*\r\n", b"", heard)
    heard = heard.replace(b"PONG\r\n", b"").replace(b"PING\r\n", b"")
    heard = re.sub(rb"_R_\.[A-Za-z0-9.]+", b"_R_", heard)
    heard = re.sub(
        rb"HMSG (\S+ \S+ (?:\S+ )?)\d+ \d+\r\nNATS/1.0\r\nNats-Request-Info: "
        rb"\{[^\r]*\}\r\n",
        rb"HMSG \1 N N\r\nNATS/1.0\r\nNats-Request-Info\r\n",
        heard,
    )
    return re.sub(rb"(<closed>)+$", b"<closed>", heard)


def both(config: str, steps: Sequence[Step]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Hold the same conversation with both."""
    return ours(config, steps), theirs(config, steps)


@contextlib.contextmanager
def reference(config: str) -> Iterator[int]:
    """Run nats-server for several conversations; yields its port."""
    with nats_server(config=config) as peer:
        yield peer.port
