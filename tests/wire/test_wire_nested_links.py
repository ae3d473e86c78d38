"""INFO and CONNECT of other servers: what is no such line is refused, however it is wrong."""

import pytest

from millstream.wire.link_info import MalformedLink, parse_link_connect, parse_link_info


@pytest.mark.parametrize("line", [b"[" * 5000, b'{"a":' * 5000, b"7", b"{", b'{"server_id":\xff}'])
def test_a_line_that_cannot_be_read_is_refused_without_a_traceback(line: bytes) -> None:
    for parse in (parse_link_info, parse_link_connect):
        with pytest.raises(MalformedLink):
            parse(line)
