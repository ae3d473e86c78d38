"""File systems of their own for tests that break them: loop-mounted ext4, small tmpfs."""

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
NO_LOG_FLUSH = 2
LET_GO_SECONDS = 60.0


def _run(*command: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(command, capture_output=True, check=False)


class LoopDisk:
    """An ext4 in a file, whose power can be cut."""

    def __init__(self, directory: Path, megabytes: int) -> None:
        if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
            pytest.skip("a power cut needs root and mkfs.ext4: a loop mount is shut down")
        self._image = directory / "disk.img"
        self.path = directory / "mounted"
        self.path.mkdir()
        with self._image.open("wb") as image:
            image.truncate(megabytes << 20)
        _run("mkfs.ext4", "-qF", str(self._image))
        if not self.mount():
            pytest.skip("a power cut needs loop mounts, and this machine refuses one")

    def mount(self) -> bool:
        """Mount the image; says whether that worked.

        A process in a mount namespace of its own, as another test may run at the same time, has a
        copy of each mount, and keeps a dead file system from going: it would be mounted again.
        """
        deadline = time.monotonic() + LET_GO_SECONDS
        while _run("losetup", "-j", str(self._image)).stdout and time.monotonic() < deadline:
            time.sleep(0.02)
        return _run("mount", "-o", "loop", str(self._image), str(self.path)).returncode == 0

    def cut_power(self) -> None:
        """Forget everything that is not on the disk; the file system is dead until remounted."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def unmount(self) -> None:
        """Unmount; harmless when it is not mounted."""
        if _run("umount", str(self.path)).returncode != 0:
            _run("umount", "-l", str(self.path))


@contextlib.contextmanager
def loop_disk(directory: Path, megabytes: int) -> Iterator[LoopDisk]:
    """An ext4 of this size until the block ends."""
    disk = LoopDisk(directory, megabytes)
    try:
        yield disk
    finally:
        disk.unmount()


@contextlib.contextmanager
def small_disk(directory: Path, megabytes: int) -> Iterator[Path]:
    """A tmpfs of this size until the block ends."""
    path = directory / "small"
    path.mkdir()
    options = f"size={megabytes}m"
    if os.geteuid() != 0 or _run("mount", "-t", "tmpfs", "-o", options, "t", str(path)).returncode:
        pytest.skip("a full disk needs root: a small tmpfs is mounted")
    try:
        yield path
    finally:
        if _run("umount", str(path)).returncode != 0:
            _run("umount", "-l", str(path))
