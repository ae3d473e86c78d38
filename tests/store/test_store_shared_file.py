"""A file that the loop is done with while a job of the file thread still works on it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from millstream.kernel._index import SubjectTable
from millstream.store.disk.files import Buffer, OsFile, OsFiles
from millstream.store.disk.shared_file import SharedFile
from millstream.store.segments.files import HEADER_BYTES
from millstream.store.segments.segment import Flush, Segment


class Interrupted(OsFile):
    """A file during whose calls the loop has a turn."""

    def __init__(self, fd: int, files: "InterruptedFiles") -> None:
        super().__init__(fd)
        self._files = files
        files.opened.append(self)

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def pwritev(self, parts: Sequence[Buffer], offset: int) -> int:
        self._files.meanwhile()
        return super().pwritev(parts, offset)

    def sync(self) -> None:
        self._files.meanwhile()
        super().sync()


class InterruptedFiles(OsFiles):
    def __init__(self) -> None:
        self.opened: list[Interrupted] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def open(self, path: str, create: bool = False) -> OsFile:
        return Interrupted(self.open_fd(path, create), self)


def growing(tmp_path: Path) -> tuple[Segment, InterruptedFiles]:
    files = InterruptedFiles()
    segment = Segment(files, str(tmp_path / "s"), 1, 1, SubjectTable())
    segment.write(Flush(HEADER_BYTES, [b"frame"], HEADER_BYTES + 5, 1, []))
    return segment, files


@pytest.mark.parametrize("let_go", [Segment.release, Segment.close])
def test_a_segment_that_is_let_go_during_its_sync_is_synced_and_then_closed(
    tmp_path: Path, let_go: Callable[[Segment], None]
) -> None:
    segment, files = growing(tmp_path)
    files.meanwhile = lambda: let_go(segment)
    segment.sync()
    assert not segment.failed
    assert len(files.opened) == 1
    assert not files.opened[0].is_open


def test_delete_flags_reach_the_file_of_a_segment_that_is_let_go_meanwhile(tmp_path: Path) -> None:
    segment, files = growing(tmp_path)
    files.meanwhile = segment.release
    offsets = [HEADER_BYTES + 1, HEADER_BYTES + 3]  # the second finds it let go
    segment.write(Flush(HEADER_BYTES + 5, [], HEADER_BYTES + 5, 1, offsets))
    data = Path(segment.path).read_bytes()
    assert data[HEADER_BYTES:] == b"f\xd5a\xd5e"
    assert not any(file.is_open for file in files.opened)


def test_a_shared_file_is_closed_by_the_last_who_gives_it_back(tmp_path: Path) -> None:
    files = InterruptedFiles()
    files.open(str(tmp_path / "f"), create=True)
    (file,) = files.opened
    shared = SharedFile(file)
    assert shared.take() is shared.take() is file
    shared.let_go()
    shared.give_back()
    assert file.is_open
    shared.give_back()
    assert not file.is_open
