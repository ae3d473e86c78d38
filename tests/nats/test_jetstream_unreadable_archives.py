"""Archives whose JSON says something else than an archive does are refused by name."""

import io
import tarfile

import pytest

from millstream.nats.jetstream.archive import Archive
from millstream.nats.jetstream.s2_frames import BadArchive


def tar(meta: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as opened:
        member = tarfile.TarInfo("meta.inf")
        member.size = len(meta)
        opened.addfile(member, io.BytesIO(meta))
    return made.getvalue()


@pytest.mark.parametrize(
    "meta", [b'{"a":' * 5000, b"[" * 5000, b'{"name":7,"created":{}}', b"{}", b"[]", b"\xff"]
)
def test_a_configuration_that_cannot_be_read_is_refused(meta: bytes) -> None:
    with pytest.raises(BadArchive):
        Archive(tar(meta))
