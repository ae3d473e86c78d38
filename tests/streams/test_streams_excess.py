"""What is above a stream's caps."""

import pytest

from millstream.streams.config.config import StreamConfig
from millstream.streams.retention import rules as retention
from millstream.streams.state import StreamState


@pytest.mark.parametrize(("discard", "over"), [("old", (1, 40)), ("new", (0, 0))])
def test_lowered_caps_remove_nothing_where_new_records_are_refused(discard, over):
    asked = {"name": "S", "discard": discard, "max_msgs": 1, "max_bytes": 60}
    state = StreamState(2, 100, 1, 2, 2, 0, 0, 0, 0, ())
    found = retention.excess(StreamConfig.from_request(asked), state)
    assert (found.messages, found.bytes) == over
