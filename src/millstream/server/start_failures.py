"""Obstacles: why the server cannot start where it was told to, in words that say what to do."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from millstream.server.options.config_error import ConfigError
from millstream.server.options.options import Options

# How each place is told to the two commands.
_FLAGS = {
    "millstream": {"nats": "--port", "http": "--http-port", "data": "--data-dir"},
    "nats-server": {"nats": "-p", "http": "-m", "data": "-sd"},
}
_ELSEWHERE = {
    "websocket": "websocket { port }",
    "leafnodes": "leafnodes { port }",
    "cluster": "cluster { port }",
}


class CannotStart(ConfigError):
    """An address or a directory cannot be used."""


@contextmanager
def listening(options: Options, door: str, host: str, port: int) -> Iterator[None]:
    """Say which door could not be opened, and what chooses another place for it."""
    try:
        yield
    except OSError as error:
        place, way = f"{host}:{port}", _way(options, door)
        if error.errno == errno.EADDRINUSE:
            fix = f"stop what listens there, or choose another port with {way}"
            raise CannotStart(f"{place} is taken: {fix}") from error
        reason = error.strerror or str(error)
        raise CannotStart(f"cannot listen on {place} ({reason}): choose another host") from error


@contextmanager
def keeping(options: Options) -> Iterator[None]:
    """Say why the directory cannot hold the data."""
    try:
        yield
    except OSError as error:
        if options.jetstream is None:
            raise
        directory = options.jetstream.directory
        about = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        fix = f"name another with {_way(options, 'data')}"
        raise CannotStart(f"cannot keep data in {directory} ({about}): {fix}") from error


def _way(options: Options, place: str) -> str:
    return _ELSEWHERE.get(place) or _FLAGS[options.program][place]
