"""Named objects in a directory: whole or absent, found by folder, read in parts."""

import pytest

from millstream.errors import ObjectsFailed
from millstream.store.objects import DirectoryObjects
from support.fake_disk import Crashed, FakeDisk, Mode


def test_what_was_put_is_got_whole_and_in_parts() -> None:
    objects = DirectoryObjects(FakeDisk(), "/cold")
    objects.put("a/b/one", b"0123456789")
    objects.put("a/b/one", b"abcdefghij")
    assert objects.get("a/b/one") == b"abcdefghij"
    assert objects.get_range("a/b/one", 3, 4) == b"defg"
    assert objects.get_range("a/b/one", 8, 100) == b"ij"


def test_a_folder_lists_its_leaves_and_an_absent_one_none() -> None:
    disk = FakeDisk()
    objects = DirectoryObjects(disk, "/cold")
    objects.put("f/two", b"")
    objects.put("f/one", b"")
    disk.open("/cold/f/three.tmp", create=True).close()
    assert objects.names("f") == ["one", "two"]
    assert objects.names("g") == []
    objects.remove("f/one")
    objects.remove("f/one")
    assert objects.names("f") == ["two"]


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(ObjectsFailed, match=r"^/cold lacks f/none$"):
        DirectoryObjects(FakeDisk(), "/cold").get("f/none")


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
