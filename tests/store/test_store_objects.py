"""Named objects in a directory or a bucket: whole or absent, found by folder, read in parts."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from millstream.errors import ObjectsFailed
from millstream.store.disk.files import OsFiles
from millstream.store.disk.objects import DirectoryObjects, Objects, RemoteObjects, open_objects
from support.fake_disk import Crashed, FakeDisk, Mode


def in_a_directory(_: Path) -> Objects:
    return DirectoryObjects(FakeDisk(), "/cold")


def in_memory(_: Path) -> Objects:
    pytest.importorskip("obstore")
    return open_objects("memory:///", OsFiles())


def in_a_local_bucket(home: Path) -> Objects:
    pytest.importorskip("obstore")
    (home / "bucket").mkdir()
    return open_objects(f"file://{home}/bucket", OsFiles())


with suppress(ObjectsFailed):  # its threads and their files stay: have them before any test counts
    open_objects("memory:///", OsFiles()).names("f")

KINDS = [in_a_directory, in_memory, in_a_local_bucket]
Make = Callable[[Path], Objects]


@pytest.mark.parametrize("make", KINDS)
def test_what_was_put_is_got_whole_and_in_parts(make: Make, tmp_path: Path) -> None:
    objects = make(tmp_path)
    objects.put("a/b/one", b"0123456789")
    objects.put("a/b/one", b"abcdefghij")
    assert objects.get("a/b/one") == b"abcdefghij"
    assert objects.get_range("a/b/one", 3, 4) == b"defg"
    assert objects.get_range("a/b/one", 8, 100) == b"ij"


@pytest.mark.parametrize("make", KINDS)
def test_a_folder_lists_its_leaves_and_an_absent_one_none(make: Make, tmp_path: Path) -> None:
    objects = make(tmp_path)
    objects.put("f/two", b"")
    objects.put("f/one", b"")
    objects.put("fx/four", b"")
    assert objects.names("f") == ["one", "two"]
    assert objects.names("g") == []
    objects.remove("f/one")
    objects.remove("f/one")
    assert objects.names("f") == ["two"]


def test_what_a_cut_write_left_does_not_count() -> None:
    disk = FakeDisk()
    objects = DirectoryObjects(disk, "/cold")
    objects.put("f/one", b"")
    disk.open("/cold/f/three.tmp", create=True).close()
    assert objects.names("f") == ["one"]


@pytest.mark.parametrize("make", KINDS)
def test_what_is_not_there_is_named(make: Make, tmp_path: Path) -> None:
    objects = make(tmp_path)
    with pytest.raises(ObjectsFailed) as failed:
        objects.get("f/none")
    assert failed.value.message == f"{objects.place} lacks f/none"
    with pytest.raises(ObjectsFailed, match="lacks f/none"):
        objects.get_range("f/none", 0, 10)


def test_a_bucket_that_fails_is_named_with_what_it_says(tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    (tmp_path / "bucket" / "f").mkdir(parents=True)
    objects = open_objects(f"file://{tmp_path}/bucket", OsFiles())
    assert isinstance(objects, RemoteObjects)
    (tmp_path / "bucket" / "g").write_bytes(b"a file where a folder should be")
    with pytest.raises(ObjectsFailed, match=r"does not take objects: "):
        objects.put("g/one", b"x")


@pytest.mark.parametrize("mode", list(Mode))
def test_a_crash_at_any_call_leaves_the_old_object_or_the_new_one(mode: Mode) -> None:
    calls = 1
    while True:
        disk = FakeDisk()
        DirectoryObjects(disk, "/cold").put("f/one", b"old" * 900)
        disk.crash_at = disk.calls + calls
        try:
            DirectoryObjects(disk, "/cold").put("f/one", b"new" * 900)
        except Crashed:
            found = DirectoryObjects(disk.after_crash(mode, calls), "/cold").get("f/one")
            assert found in (b"old" * 900, b"new" * 900)
            calls += 1
            continue
        break
    assert calls > 4
    assert DirectoryObjects(disk.after_crash(mode, 0), "/cold").get("f/one") == b"new" * 900
