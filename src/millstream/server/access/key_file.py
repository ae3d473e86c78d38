"""KeyFile: the API keys of a data directory, digests only, read again when somebody changes it."""

import contextlib
import fcntl
import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from millstream.accounts.api_keys import ApiKey, BadKeys, decode_keys, encode_keys
from millstream.server.options.config_error import ConfigError

NAME = "api-keys.json"
DISABLED = "api-keys.disabled"
LARGEST = 4 * 1024 * 1024
CHECK_SECONDS = 1.0

log = logging.getLogger(__name__)

Stamp = tuple[int, int, int]  # inode, size and time of change


class KeyFile:
    """Where ``millstream key`` writes and the server reads; absent means that there are no keys."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME
        self._mark = directory / DISABLED

    def exists(self) -> bool:
        """Whether keys were handed out here, and not all disabled since."""
        return self.path.exists()

    @property
    def is_disabled(self) -> bool:
        """Whether somebody has said that no key shall be asked for any more."""
        return not self.path.exists() and self._mark.exists()

    def remove(self) -> None:
        """Take all keys back, and say that nobody shall be asked for one any more."""
        self._mark.touch(mode=0o600)
        self.path.unlink(missing_ok=True)

    def stamp(self) -> Stamp | None:
        """Return what tells one version of the file from another."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def read(self) -> tuple[ApiKey, ...]:
        """Return the keys; raises ``ConfigError`` about a file that cannot be trusted."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise ConfigError(f"{self.path}: {error.strerror}") from error
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode) or mode & 0o077:
                raise ConfigError(f"{self.path} can be read by other users: chmod 600 {self.path}")
            try:
                return decode_keys(file.read(LARGEST))
            except BadKeys as error:
                raise ConfigError(f"{self.path}: {error}") from error

    @contextlib.contextmanager
    def changed(self) -> Iterator[list[ApiKey]]:
        """Give the keys as a list to change, and write it in one step; one writer at a time."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            keys = list(self.read())
            yield keys
            self._write(keys)
        finally:
            os.close(lock)

    def _write(self, keys: Iterable[ApiKey]) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(encode_keys(keys))
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(self.path)
        self._mark.unlink(missing_ok=True)
        directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


class KeyWatch:
    """Looks at the file from time to time and hands on what it holds now.

    A file that cannot be read changes nothing: the keys that counted still count, and the log says
    so once for each version of the file.
    """

    def __init__(
        self,
        file: KeyFile,
        replace: Callable[[Iterable[ApiKey]], None],
        open_door: Callable[[], None],
    ) -> None:
        self._file = file
        self._replace = replace
        self._open_door = open_door
        self._seen: Stamp | None = None

    def start(self) -> None:
        """Read the file for the first time; raises ``ConfigError`` when it is no good."""
        self._seen = self._file.stamp()
        if self._seen is not None:
            self._replace(self._file.read())

    def check(self) -> None:
        """Read the file again if it is another one by now."""
        try:
            stamp = self._file.stamp()
        except OSError:
            return  # a directory that cannot be looked at is the store's to report
        if stamp == self._seen:
            return
        self._seen = stamp
        if self._file.is_disabled:
            self._open_door()
            log.info("API keys disabled: HTTP asks for none")
            return
        try:
            keys = self._file.read()
        except ConfigError as error:
            log.error("API keys not reread, the old ones still count: %s", error)
            return
        self._replace(keys)
        log.info("API keys reread count=%d", len(keys))
