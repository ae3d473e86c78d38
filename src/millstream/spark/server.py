"""Which server, as whom, and how long to wait for it; one connection to it per process."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.client.blocking import Client, connect
from millstream.client.errors import ClientError
from millstream.client.login import Login, login_of
from millstream.client.streams import StreamReader, open_streams
from millstream.spark.problems import OptionError

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
