"""Who may read a stream whole and write staged batches, over both doors of a whole server."""

import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import nkeys as signing
import pytest
from xxhash import xxh3_64_hexdigest

from millstream.client import connect
from millstream.client.errors import AuthenticationFailed, PermissionDenied
from millstream.client.login import BadCredentials, Login, login_of
from millstream.client.streams import Batch, StagedFile, StreamReader, open_streams
from millstream.kernel._batch import Batch as Entries
from support.peers import Peer, free_port, running, scratch_directory

pytestmark = pytest.mark.timeout(60)

SEED = signing.encode_seed(bytes(range(32)), signing.PREFIX_BYTE_USER)
NKEY = signing.from_seed(bytearray(SEED)).public_key.decode()

USERS = f"""
authorization {{ users = [
  {{ user: all, password: pw }}
  {{ nkey: {NKEY} }}
  {{ user: deaf, password: pw, permissions: {{ subscribe: {{ deny: ["orders.secret"] }} }} }}
  {{ user: part, password: pw, permissions: {{ subscribe: ["_INBOX.>", "orders.eu"] }} }}
  {{ user: none, password: pw, permissions: {{ subscribe: ["_INBOX.>", "other.>"] }} }}
  {{ user: listed, password: pw, permissions: {{ subscribe: ["_INBOX.>", "orders.>"] }} }}
  {{ user: mute, password: pw, permissions: {{ publish: {{ deny: ["orders.secret"] }} }} }}
  {{ user: few, password: pw, permissions: {{
      publish: ["$MILLSTREAM.API.>", "orders.eu"] }} }}
] }}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Peer]:
    with scratch_directory("millstream") as directory:
        port, http_port = free_port(), free_port()
        path = directory / "server.conf"
        store = f'jetstream {{ store_dir: "{directory / "data"}" }}'
        path.write_text(f"listen: 127.0.0.1:{port}\n{store}\n{USERS}\n")
        command = [sys.executable, "-m", "millstream", "serve", "-c", str(path)]
        command += ["--http-port", str(http_port)]
        with running("millstream", command, port, directory, http_port) as peer:
            with connect(peer.url, login=Login("all", "pw")) as client:
                config = b'{"name":"ORDERS","subjects":["orders.*"]}'
                client.request("$JS.API.STREAM.CREATE.ORDERS", config)
                for subject in ("orders.eu", "orders.secret", "orders.eu", "orders.secret"):
                    client.request(subject, b"x")
            yield peer


def opened(server: Peer, login: Login, door: str) -> StreamReader:
    url = server.url if door == "nats" else f"http://127.0.0.1:{server.http_port}"
    return open_streams(url, 5.0, login)


@pytest.fixture(params=["nats", "http"])
def door(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def scan(frames: bytes) -> list[tuple[int, bytes]]:
    """Return sequence and subject of each frame."""
    found, at = [], 0
    while at < len(frames):
        size, _, names = struct.unpack_from("<IHH", frames, at + 4)
        (seq,) = struct.unpack_from("<Q", frames, at + 32)
        found.append((seq, frames[at + 52 : at + 52 + names]))
        at += size
    return found


def write(streams: StreamReader, sink: str) -> int:
    entries = Entries()
    entries.add(b"orders.eu", b"", b"", b"y")
    data, batch = entries.buffer, Batch(sink, 0)
    streams.stage("ORDERS", batch, "a", 0, data)
    file = StagedFile("a", len(data), xxh3_64_hexdigest(data))
    return streams.commit("ORDERS", batch, [file]).records


@pytest.mark.parametrize("user", ["all", "listed", "mute"])
def test_who_may_hear_everything_may_read_the_stream(server: Peer, door: str, user: str) -> None:
    streams = opened(server, Login(user, "pw"), door)
    try:
        assert streams.plan("ORDERS").last_seq >= 2
        assert b"orders.secret" in streams.read("ORDERS", 1, 2)
        if user == "all":
            assert streams.names() == ["ORDERS"]
            streams.hold("ORDERS", f"reader-{door}", 1, 1.0)
    finally:
        streams.close()


@pytest.mark.parametrize("user", ["deaf", "part"])
def test_who_may_not_hear_a_subject_gets_the_others_and_no_path(
    server: Peer, door: str, user: str
) -> None:
    streams = opened(server, Login(user, "pw"), door)
    try:
        plan = streams.plan("ORDERS")
        assert (plan.whole, plan.segments, plan.cold) == (False, [], [])
        assert plan.last_seq >= 4
        found = scan(streams.read("ORDERS", 1, 4))
        assert found == [(1, b"orders.eu"), (3, b"orders.eu")]
        assert streams.read("ORDERS", 2, 2) == b""
        assert scan(streams.read("ORDERS", 1, 4, max_bytes=1)) == [(1, b"orders.eu")]
        with pytest.raises(PermissionDenied):  # to hold up the limits is to speak for all of it
            streams.hold("ORDERS", "reader", 1, 0.0)
    finally:
        streams.close()


def test_a_subject_that_comes_later_is_judged_too(server: Peer, door: str) -> None:
    streams = opened(server, Login("deaf", "pw"), door)
    try:
        last = streams.plan("ORDERS").last_seq
        assert streams.read("ORDERS", last + 1, last + 9) == b""
        with connect(server.url, login=Login("all", "pw")) as client:
            for subject in (f"orders.new-{door}", "orders.secret"):
                client.request(subject, b"x")
        found = scan(streams.read("ORDERS", last + 1, last + 9))
        assert found == [(last + 1, f"orders.new-{door}".encode())]
    finally:
        streams.close()


def test_who_may_hear_nothing_of_a_stream_gets_nothing(server: Peer, door: str) -> None:
    streams = opened(server, Login("none", "pw"), door)
    try:
        for ask in (
            lambda: streams.plan("ORDERS"),
            lambda: streams.read("ORDERS", 1, 2),
            lambda: streams.hold("ORDERS", "reader", 1, 0.0),
        ):
            with pytest.raises(PermissionDenied):
                ask()
    finally:
        streams.close()


@pytest.mark.parametrize("user", ["mute", "few"])
def test_who_may_not_publish_a_subject_stages_nothing(server: Peer, door: str, user: str) -> None:
    streams = opened(server, Login(user, "pw"), door)
    try:
        with pytest.raises(PermissionDenied):
            write(streams, user)
        with pytest.raises(PermissionDenied):
            streams.commit("ORDERS", Batch(user, 0), [])
    finally:
        streams.close()


def test_a_batch_is_written_over_either_door(server: Peer, door: str) -> None:
    streams = opened(server, Login("all", "pw"), door)
    try:
        assert write(streams, door) == 1
        assert write(streams, door) == 0  # the same batch again
        streams.abort("ORDERS", Batch(door, 1))
    finally:
        streams.close()


def test_a_seed_opens_the_door_and_a_wrong_one_does_not(server: Peer, tmp_path: Path) -> None:
    path = tmp_path / "user.nk"
    path.write_bytes(SEED)
    streams = opened(server, login_of(nkey_file=str(path)), "nats")
    assert streams.plan("ORDERS").last_seq >= 2
    streams.close()
    path.write_bytes(signing.encode_seed(bytes(32), signing.PREFIX_BYTE_USER))
    stranger = opened(server, login_of(nkey_file=str(path)), "nats")
    with pytest.raises(AuthenticationFailed):
        stranger.plan("ORDERS")


def test_credentials_are_read_once_and_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "user.creds"
    path.write_text(
        "-----BEGIN NATS USER JWT-----\nthe.jwt\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{SEED.decode()}\n------END USER NKEY SEED------\n"
    )
    login = login_of(creds_file=str(path), user="u", password="pw")
    assert (login.jwt, login.seed) == ("the.jwt", SEED.decode())
    assert repr(login) == "Login(user, password, seed, jwt)"
    said = login.answer("nonce")
    assert set(said) == {"user", "pass", "sig", "jwt"}
    path.write_text("nothing")
    with pytest.raises(BadCredentials, match="not a credentials file"):
        login_of(creds_file=str(path))
    with pytest.raises(BadCredentials, match="not base32"):
        login_of(nkey_file=str(path))
    with pytest.raises(BadCredentials, match="cannot read"):
        login_of(ca_file=str(tmp_path / "absent"))
