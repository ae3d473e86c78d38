"""What the hub is told about clients: how long their lines may be, and where publishes go."""

import pytest
from hub_recorder import Recorder

from millstream.kernel import _hub


class Mapping(Recorder):
    """Sends publishes elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[bytes, bytes] = {}

    def map_subject(self, cid: int, subject: bytes) -> bytes:
        return self.places.get(subject, subject)


def errors(door: Recorder) -> list[object]:
    return [call[2] for call in door.calls if call[0] == "error"]


@pytest.mark.parametrize("limit", [16, 512, 4096, 100_000])
@pytest.mark.parametrize("pieces", [1, 7])
def test_arguments_up_to_the_limit_are_taken_and_longer_ones_refused(
    limit: int, pieces: int
) -> None:
    for length, refused in ((limit, []), (limit + 1, [_hub.LINE_TOO_LONG])):
        door = Recorder(max_control_line=limit)
        client = door.client()
        line = b"SUB " + b"x" * (length - 2) + b" 1\r\n"
        cut = len(line) // pieces + 1
        for at in range(0, len(line), cut):
            door.hub.feed(client, line[at : at + cut])
        assert errors(door) == refused
        assert [call[0] for call in door.calls].count("sub") == (0 if refused else 1)


def test_the_limit_changes_for_connections_that_are_open() -> None:
    door = Recorder()
    client = door.client()
    door.hub.max_control_line = 8
    door.hub.feed(client, b"SUB a 1\r\n")
    assert errors(door) == []
    door.hub.feed(client, b"SUB abcdefgh 2\r\n")
    assert errors(door) == [_hub.LINE_TOO_LONG]


def test_blanks_without_end_are_refused() -> None:
    door = Recorder(max_control_line=64)
    client = door.client()
    door.hub.feed(client, b"PUB" + b" " * 100)
    assert errors(door) == []
    door.hub.feed(client, b" " * 100)
    assert errors(door) == [_hub.LINE_TOO_LONG]


def test_a_ping_may_be_followed_by_anything_up_to_its_end() -> None:
    door = Recorder(max_control_line=64)
    client = door.client()
    door.hub.feed(client, b"PING" + b" " * 500)
    door.hub.feed(client, b"\r\n")
    assert door.sent(client) == b"PONG\r\n"


def test_a_requester_of_a_very_long_subject_is_told_that_nobody_answers() -> None:
    door = Recorder(max_control_line=60_000)
    client = door.client(no_responders=True)
    subject = b"x" * 50_000
    door.hub.feed(client, b"SUB inbox 1\r\nPUB %s inbox 0\r\n\r\n" % subject)
    size = 32 + len(subject)
    assert door.sent(client) == (
        b"HMSG inbox 1 %d %d\r\nNATS/1.0 503\r\nNats-Subject: %s\r\n\r\n\r\n"
        % (size, size, subject)
    )


def test_a_mapped_publish_is_matched_checked_and_shown_under_its_new_subject() -> None:
    door = Mapping()
    door.places = {b"a": b"b", b"no": b"denied"}
    door.verdicts = {b"denied": _hub.DENIED}
    client = door.client(mapped=True, guarded=True)
    door.hub.feed(client, b"SUB > 1\r\nPUB a r 2\r\nhi\r\nPUB no 0\r\n\r\nPUB c 0\r\n\r\n")
    assert door.sent(client) == b"MSG b 1 r 2\r\nhi\r\nMSG c 1 0\r\n\r\n"
    asked = [call[2] for call in door.calls if call[0] == "may_publish"]
    assert asked == [b"b", b"denied", b"c"]


def test_a_message_that_is_mapped_to_nowhere_is_lost() -> None:
    door = Mapping()
    door.places = {b"a": b""}
    client = door.client(mapped=True)
    door.hub.feed(client, b"SUB > 1\r\nPUB a 0\r\n\r\nPUB b 0\r\n\r\n")
    assert door.sent(client) == b"MSG b 1 0\r\n\r\n"


def test_the_same_subject_may_go_elsewhere_each_time() -> None:
    door = Mapping()
    client = door.client(mapped=True)
    door.hub.feed(client, b"SUB > 1\r\n")
    for place in (b"x", b"y", b"x", b"longer.one"):
        door.places[b"a"] = place
        door.hub.feed(client, b"PUB a 0\r\n\r\n")
        assert door.sent(client) == b"MSG %s 1 0\r\n\r\n" % place


def test_a_door_that_cannot_map_loses_the_one_connection() -> None:
    door = Recorder()  # knows no map_subject
    bad, good = door.client(mapped=True), door.client()
    door.hub.feed(bad, b"PUB a 0\r\n\r\n")
    assert ("closed", bad, _hub.INTERNAL_ERROR) in door.calls
    door.hub.feed(good, b"SUB a 1\r\nPUB a 0\r\n\r\n")
    assert door.sent(good) == b"MSG a 1 0\r\n\r\n"


def test_publishers_are_not_held_back_where_that_is_turned_off() -> None:
    for holds in (True, False):
        door = Recorder(max_pending=100_000, holds_publishers=holds)
        publisher, slow = door.client(), door.client()
        door.on_output = lambda cid: None  # type: ignore[method-assign]
        door.hub.feed(slow, b"SUB a 1\r\n")
        door.hub.feed(publisher, b"PUB a 80000\r\n" + bytes(80_000) + b"\r\n")
        assert door.hub.is_stalled(publisher) is holds
