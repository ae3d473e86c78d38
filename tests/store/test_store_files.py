"""The seam to the operating system, on a real disk and on the fake one."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from millstream.store.disk import files as files_module
from millstream.store.disk.files import (
    Buffer,
    OsFiles,
    ensure_dir,
    replace_file,
    write_all,
    write_parts,
)
from millstream.store.wal.entry import FrameRun, WalEntry, encode_entry, scan_entries
from support.fake_disk import Crashed, FakeDisk, Mode


def test_directories_are_for_this_user_alone(tmp_path: Path) -> None:
    ensure_dir(OsFiles(), f"{tmp_path}/data/wal")
    assert os.stat(tmp_path / "data").st_mode & 0o777 == 0o700
    assert os.stat(tmp_path / "data/wal").st_mode & 0o777 == 0o700


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    files = OsFiles()
    replace_file(files, str(tmp_path), "state", b"old and long")
    replace_file(files, str(tmp_path), "state", b"new")
    assert (tmp_path / "state").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["state"]


def test_a_view_stays_valid_after_the_file_is_closed(tmp_path: Path) -> None:
    files = OsFiles()
    replace_file(files, str(tmp_path), "state", b"bytes")
    file = files.open(f"{tmp_path}/state")
    view = file.view(5)
    file.close()
    assert bytes(view) == b"bytes"


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    os.symlink(tmp_path / "secret", tmp_path / "link")
    with pytest.raises(OSError, match="symbolic links"):
        OsFiles().open(f"{tmp_path}/link")


@pytest.mark.parametrize("most", [1, 2, 7])
def test_short_writes_are_continued(most: int) -> None:
    disk = FakeDisk()
    disk.failures = dict.fromkeys(range(1, 40), most)
    file = disk.open("/f", create=True)
    write_all(file, b"0123456789", 0)
    write_parts(file, [b"abc", b"defgh"], 10)
    assert file.pread(100, 0) == b"0123456789abcdefgh"


def test_many_and_long_parts_are_written_in_calls_of_bounded_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(files_module, "CALL_BYTES", 5)
    monkeypatch.setattr(files_module, "MOST_PARTS", 3)
    disk, calls = FakeDisk(), []
    file = disk.open("/f", create=True)
    write = file.pwritev

    def noted(parts: Sequence[Buffer], offset: int) -> int:
        calls.append([bytes(part) for part in parts])
        return write(parts, offset)

    monkeypatch.setattr(file, "pwritev", noted)
    write_parts(file, [b"ab", b"cd", b"", b"e", b"f", b"0123456789ABC", b"x"], 4)
    assert file.pread(100, 4) == b"abcdef0123456789ABCx"
    assert all(sum(map(len, parts)) <= 5 and len(parts) <= 3 for parts in calls)
    assert len(calls) == 5


def test_the_fake_disk_forgets_what_was_not_synced() -> None:
    disk = FakeDisk()
    file = disk.open("/kept", create=True)
    write_all(file, b"stable", 0)
    file.sync()
    disk.sync_dir("/")
    write_all(file, b"STABLE", 0)
    disk.open("/unnamed", create=True).sync()
    left = disk.after_crash(Mode.DROP, 0)
    assert left.content() == {"/kept": b"stable"}


def test_the_fake_disk_stays_off_after_a_crash() -> None:
    disk = FakeDisk()
    disk.crash_at = 1
    with pytest.raises(Crashed):
        disk.open("/a", create=True)
    with pytest.raises(Crashed):
        disk.open("/a")


def test_a_directory_that_was_neither_synced_nor_removed_is_synced_by_the_next_attempt() -> None:
    disk = FakeDisk()
    ensure_dir(disk, "/data")
    disk.failures = {
        disk.calls + 2: OSError(errno.EIO, "input/output error"),  # the sync of the name
        disk.calls + 3: OSError(errno.ENOSPC, "no space left"),  # the removal
    }
    with pytest.raises(OSError, match="no space left"):
        ensure_dir(disk, "/data/streams")
    assert disk.exists("/data/streams")
    ensure_dir(disk, "/data/streams/1")
    assert disk.after_crash(Mode.DROP, 1).exists("/data/streams/1")


def test_reserved_space_is_known_to_hold_zeros_without_a_look(tmp_path: Path) -> None:
    file = OsFiles().open(str(tmp_path / "f"), create=True)
    assert file.data_end() == 0
    write_all(file, b"x" * 10_000, 0)
    assert file.data_end() == file.size() == 10_000
    file.preallocate(8 << 20)
    assert 10_000 <= file.data_end() <= file.size()
    assert not any(file.pread(8 << 20, file.data_end()))
    write_all(file, b"y", 4 << 20)
    assert file.data_end() > 4 << 20
    assert not any(file.pread(8 << 20, file.data_end()))
    file.close()


def test_entries_are_not_looked_for_where_nothing_was_written() -> None:
    entry = b"".join(encode_entry(1, 1, 1, 0, True, [FrameRun(1, 0, 1, 3)], [b"abc"]))
    buffer = memoryview(bytes(64) + entry + bytes(1000) + b"not to be seen")
    found = list(scan_entries(buffer, 64, 0, 64 + len(entry)))
    assert [type(item) for item in found] == [WalEntry]
    assert len(list(scan_entries(buffer, 64, 0))) == 2  # it is, where nobody says better
