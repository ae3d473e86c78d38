"""JwtFiles: one file for each account's JWT, written so that a crash leaves the old or the new."""

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from millstream.supervisor import Supervisor

SUFFIX = ".jwt"
_LONGEST = 1 << 20

Done = Callable[[OSError | None], None]
Post = Callable[[Callable[[], object]], object]
_Job = tuple[Callable[[], None], Done]


class JwtFiles:
    """Writes on a thread, one change after the other; ``done`` is called on the loop."""

    def __init__(self, directory: Path, supervisor: Supervisor, post: Post) -> None:
        self._directory = directory
        self._supervisor = supervisor
        self._post = post
        self._jobs: deque[_Job] = deque()  # the first of them is under way

    def write(self, public: str, token: str, done: Done) -> None:
        """Keep a JWT; ``done`` once it is on disk."""
        self._begin((partial(write_file, self._directory, public, token), done))

    def remove(self, public: str, *, for_good: bool, done: Done) -> None:
        """Forget a JWT; its file stays under another name unless it goes ``for_good``."""
        self._begin((partial(_remove, self._directory, public, for_good=for_good), done))

    def _begin(self, job: _Job) -> None:
        self._jobs.append(job)
        if len(self._jobs) == 1:
            self._next()

    def _next(self) -> None:
        work = self._jobs[0][0]
        self._supervisor.thread("a write of account JWTs", partial(self._run, work), self._failed)

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            self._post(partial(self._settle, error))
        else:
            self._post(partial(self._settle, None))

    def _failed(self, error: BaseException) -> None:
        self._post(partial(self._settle, OSError(0, str(error))))

    def _settle(self, error: OSError | None) -> None:
        _, done = self._jobs.popleft()
        if self._jobs:
            self._next()
        done(error)


def read_files(directory: Path) -> dict[str, str]:
    """Return every JWT of a directory by its account; what cannot be read is left out."""
    found: dict[str, str] = {}
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        with suppress(OSError, ValueError):
            if path.stat().st_size <= _LONGEST:
                found[path.name.removesuffix(SUFFIX)] = path.read_text("ascii").strip()
    return {public: token for public, token in found.items() if token}


def write_file(directory: Path, public: str, token: str) -> None:
    """Write a JWT, and return once it is on disk."""
    path = directory / f"{public}{SUFFIX}"
    fresh = path.with_suffix(".new")
    with fresh.open("w", encoding="ascii") as file:
        file.write(token)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
    _sync(directory)


def _remove(directory: Path, public: str, *, for_good: bool) -> None:
    path = directory / f"{public}{SUFFIX}"
    with suppress(FileNotFoundError):
        if for_good:
            path.unlink()
        else:
            path.rename(path.with_name(f"{path.name}.deleted"))
    _sync(directory)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
