"""Small files that launchers wait for: the process id, and the ports that were taken."""

import os
from pathlib import Path

import msgspec


class LauncherFiles:
    """Keeps files while the server runs; each appears whole or not at all."""

    def __init__(self) -> None:
        self._written: set[Path] = set()

    def write(self, files: dict[Path, str]) -> None:
        """Write these files, and remove those of before that are not among them."""
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(path.name + ".tmp")
            partial.write_text(text)
            partial.replace(path)
        for path in self._written - files.keys():
            path.unlink(missing_ok=True)
        self._written = set(files)

    def remove(self) -> None:
        """Remove every file; a second call does nothing."""
        for path in self._written:
            path.unlink(missing_ok=True)
        self._written.clear()


def pid_text() -> str:
    """Return what a pid file holds."""
    return str(os.getpid())


def ports_file(directory: str, program: str, urls: dict[str, list[str]]) -> tuple[Path, str]:
    """Return the ports file's path and text: ``{"nats": ["nats://host:port"], …}``."""
    taken = {door: addresses for door, addresses in urls.items() if addresses}
    path = Path(directory) / f"{program}_{os.getpid()}.ports"
    return path, msgspec.json.encode(taken).decode()
