"""nats-server's own command line and the plain keys of its file, turned into our configuration.

Flags follow Go's rules: one dash or two, ``-f value`` or ``-f=value``, booleans without a value.
What we do not do is refused by name, never ignored: a server that silently leaves out its
authorization is worse than one that does not start.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from millstream.server.conf_syntax import Block, ConfError, Value, parse
from millstream.server.config import ConfigError, Given

# What the server does anyway, or what only changes how much it says.
QUIET = {"D", "debug", "V", "trace", "DV", "VV", "DVV", "T", "logtime", "js", "jetstream"}
FLAGS = {
    "p": "port",
    "port": "port",
    "a": "host",
    "addr": "host",
    "net": "host",
    "m": "http_port",
    "http_port": "http_port",
    "n": "server_name",
    "name": "server_name",
    "server_name": "server_name",
    "sd": "data_dir",
    "store_dir": "data_dir",
    "P": "pid_file",
    "pid": "pid_file",
    "ports_file_dir": "ports_file_dir",
    "c": "config",
    "config": "config",
}
FILE_KEYS = {
    "port": "port",
    "host": "host",
    "net": "host",
    "http_port": "http_port",
    "monitor_port": "http_port",
    "server_name": "server_name",
    "max_payload": "max_payload",
    "pid_file": "pid_file",
    "ports_file_dir": "ports_file_dir",
}
QUIET_KEYS = {"debug", "trace", "logtime"}
TRUE_WORDS = {"", "true", "1", "t"}


@dataclass(slots=True)
class Launch:
    """How to serve: values named as in ``ServeConfig``, and whether only the version was asked."""

    values: dict[str, Given] = field(default_factory=dict)
    version: bool = False


def read_flags(arguments: Sequence[str], read: Callable[[str], str]) -> Launch:
    """Return what the command line asks for; it wins over the file that it names."""
    launch = Launch()
    words = list(arguments)
    while words:
        _take(words, launch)
    config = launch.values.pop("config", None)
    if config is not None:
        launch.values = {**read_file(read(str(config)), str(config)), **launch.values}
    return launch


def _take(words: list[str], launch: Launch) -> None:
    word = words.pop(0)
    name, equals, value = word.lstrip("-").partition("=")
    if not word.startswith("-") or not name:
        raise ConfigError(f"unrecognized command: {word}")
    if name in ("v", "version"):
        launch.version = True
    elif name in QUIET:
        _check_switch(name, value)
    elif name not in FLAGS:
        raise ConfigError(f"-{name} is not supported: start without it, or use nats-server")
    elif not equals and not words:
        raise ConfigError(f"-{name} needs a value")
    else:
        launch.values[FLAGS[name]] = value if equals else words.pop(0)


def _check_switch(name: str, value: str) -> None:
    if value.lower() not in TRUE_WORDS:
        raise ConfigError(f"-{name} cannot be switched off")


def read_file(text: str, file: str) -> dict[str, Given]:
    """Return the values of a configuration file that holds only what we do."""
    try:
        block = parse(text, file)
    except ConfError as error:
        raise ConfigError(str(error)) from error
    values: dict[str, Given] = {}
    for key, value in block.items():
        values.update(_key(key, value, block))
    return values


def _key(key: str, value: Value, block: Block) -> Mapping[str, Given]:
    known = FILE_KEYS.get(key)
    if known is not None and isinstance(value, str | int):
        return {known: value}
    if key in QUIET_KEYS:
        return {}
    if key == "listen":
        host, _, port = str(value).rpartition(":")
        return {"port": port, "host": host} if host else {"port": port}
    if key == "jetstream":
        return _jetstream(value, block)
    raise _unsupported(key, block)


def _jetstream(value: Value, block: Block) -> Mapping[str, Given]:
    if not isinstance(value, Block):
        return {}
    for key in value:
        if key != "store_dir":
            raise _unsupported(key, value)
    directory = value.get("store_dir")
    return {} if directory is None else {"data_dir": str(directory)}


def _unsupported(key: str, block: Block) -> ConfigError:
    file, line = block.places.get(key, ("config", 0))
    return ConfigError(f"{file}:{line}: '{key}' is not supported: leave it out, or use nats-server")
