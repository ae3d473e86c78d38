"""UserFile: the users that ``millstream user`` manages, as a piece of configuration."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from millstream.server.options.config_error import ConfigError

NAME = "users.conf"
HEAD = """# Written by `millstream user`: change users with it, not by hand.
# `millstream serve` reads this file from its data directory; SIGHUP reads it again.
"""
_START = "authorization "

ManagedUser = dict[str, Any]


class UserFile:
    """A file in nats-server's form whose one block is written as JSON, which that form takes."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME

    def read(self) -> list[ManagedUser]:
        """Return the users; raises ``ConfigError`` about a file that somebody else wrote."""
        try:
            text = self.path.read_text()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigError(f"{self.path}: {error.strerror}") from error
        body = "".join(line for line in text.splitlines(True) if not line.startswith("#")).strip()
        try:
            users: list[ManagedUser] = json.loads(body.removeprefix(_START))["users"]
        except (ValueError, KeyError, TypeError):
            raise ConfigError(
                f"{self.path} is not as `millstream user` writes it: move it away, and name it "
                "with --config if you want to keep it"
            ) from None
        return users

    @contextlib.contextmanager
    def changed(self) -> Iterator[list[ManagedUser]]:
        """Give the users as a list to change, and write it in one step; one writer at a time."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            users = self.read()
            yield users
            self._write(users)
        finally:
            os.close(lock)

    def _write(self, users: list[ManagedUser]) -> None:
        if not users:
            self.path.unlink(missing_ok=True)
            return
        fresh = self.path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{HEAD}{_START}{json.dumps({'users': users}, indent=2)}\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(self.path)
