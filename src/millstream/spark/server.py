"""Which server, as whom, and how long to wait for it; one connection to it per process."""

import socket
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from millstream.client.blocking import Client, connect
from millstream.client.errors import ClientError, ConnectFailed
from millstream.client.login import Login, login_of
from millstream.client.streams import DEFAULT_HTTP_PORT, StreamReader, open_streams, patiently
from millstream.spark.problems import OptionError

FIRST_PATIENCE = 1.0  # seconds
DEFAULT_URL = "nats://127.0.0.1:4222"

# Options that become a login: how Spark spells them, and how ``login_of`` does.
LOGIN_OPTIONS = {
    "user": "user",
    "password": "password",
    "token": "token",
    "apiKey": "token",
    "nkeyFile": "nkey_file",
    "credsFile": "creds_file",
    "tlsCa": "ca_file",
    "tlsCert": "cert_file",
    "tlsKey": "key_file",
}


@dataclass(frozen=True, slots=True)
class Server:
    """A server and how to reach it; small, as Spark pickles it to every task."""

    url: str = DEFAULT_URL
    timeout: float = 10.0
    patience: float = 30.0  # how long a server that went away is waited for
    login: Login = field(default_factory=Login)
    first_patience: float = FIRST_PATIENCE  # how long one that was never there is

    def reach(self) -> None:
        """Connect, and fail soon where no server is: whoever starts something wants to know.

        A process that was connected once, and the tasks of a query, have more patience.
        """
        if self in _connections:
            return
        try:
            self._greet()
        except ConnectFailed as error:  # in words of Spark, not of the command line
            raise type(error)(str(error).replace("with --url", 'by option("url", …)')) from error

    def _greet(self) -> None:
        if self.url.startswith(("http://", "https://")):
            patiently(lambda: _knock(self.url, self.timeout), self.first_patience)
            return
        with closing(open_streams(self.url, self.timeout, self.login, self.first_patience)) as one:
            _ = one.part_bytes  # the server says it as it greets

    def streams(self) -> StreamReader:
        """Return this process's connection. Spark keeps its workers, so it outlives a task."""
        held = _connections.get(self)
        if held is None:
            held = open_streams(self.url, self.timeout, self.login, self.patience)
            _connections[self] = held
        return held

    def client(self) -> Client:
        """Return a new connection of the NATS protocol alone."""
        return connect(self.url, name="millstream spark", timeout=self.timeout, login=self.login)


def _knock(url: str, timeout: float) -> None:
    """Raise ``ConnectFailed`` where nobody listens; who asks for a path may be refused it."""
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port
    try:
        known = port or (443 if parts.scheme == "https" else DEFAULT_HTTP_PORT)
        socket.create_connection((host, known), timeout).close()
    except OSError as error:
        raise ConnectFailed(
            f"cannot reach {parts.scheme}://{host}:{known}: {error.strerror or error}. Start a "
            "server with `millstream serve`, or name another with --url"
        ) from error


_connections: dict[Server, StreamReader] = {}


def login_from(given: Mapping[str, str]) -> Login:
    """Return the login that options name, by their lower-case names; its files are read here."""
    settings: dict[str, str] = {}
    for spelled, name in LOGIN_OPTIONS.items():
        if spelled.lower() in given:
            if name in settings:
                raise OptionError("give either token or apiKey")
            settings[name] = given[spelled.lower()]
    try:
        return login_of(**settings)
    except ClientError as error:
        raise OptionError(str(error)) from error
