"""Streams of the configuration are there when the server is ready, and follow the file."""

from pathlib import Path

import pytest

from millstream.server.command_line.serve_options import load_serve
from millstream.server.options.config_error import ConfigError
from support.broker import millstream
from support.command_line import run


def test_streams_of_the_file_are_made_and_changed_at_each_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf, data = tmp_path / "server.conf", tmp_path / "data"
    text = "streams { ORDERS { subjects: ['orders.>'], max_age: '%s', max_bytes: 1GB } }"
    for age in ("1h", "2h"):
        conf.write_text(text % age)
        with millstream(data_dir=data, extra=["-c", str(conf)]) as broker:
            stored = run(capsys, ["pub", "orders.new", "1", "-s", broker.url])
            assert stored.out.startswith("stored in ORDERS as seq ")
            shown = run(capsys, ["stream", "info", "ORDERS", "-s", broker.url])
            assert age in shown.out


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("streams { A { subject: x } }", "did you mean 'subjects'?"),
        ("streams { A { subjects: 'a b' } }", "describes no stream"),
        ("streams { A { max_age: 7x } }", "max_age"),
    ],
)
def test_a_mistake_stops_the_start_and_names_its_line(
    tmp_path: Path, text: str, complaint: str
) -> None:
    conf = tmp_path / "server.conf"
    conf.write_text("\n" + text)
    with pytest.raises(ConfigError, match=r"server\.conf:2") as caught:
        load_serve({}, str(conf))
    assert complaint in str(caught.value)
