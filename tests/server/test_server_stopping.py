"""A server that is told to stop keeps what it answers on the way."""

import json
import signal
from contextlib import closing
from itertools import pairwise
from pathlib import Path

from millstream.client.streams import NatsStreams
from support.server_process import Wire, started

STREAMS = 300


def created(answers: list[str]) -> set[str]:
    """Return the streams whose creation was answered: the lines behind ``MSG answer.<name>``."""
    found = (
        (head.split(), body) for head, body in pairwise(answers) if head.startswith("MSG answer.")
    )
    return {
        head[1].removeprefix("answer.") for head, body in found if "error" not in json.loads(body)
    }


def test_streams_whose_creation_was_answered_as_the_server_stopped_are_there(
    tmp_path: Path,
) -> None:
    place = ("-js", "-sd", str(tmp_path / "data"))
    requests = []
    for number in range(STREAMS):
        body = json.dumps({"name": f"S{number}", "subjects": [f"s.{number}"]})
        to = f"$JS.API.STREAM.CREATE.S{number} answer.S{number}"
        requests.append(f"PUB {to} {len(body)}\r\n{body}")
    with started(*place) as server, Wire(server.ready()) as wire:
        wire.say('CONNECT {"verbose":false}\r\nSUB answer.* 1')
        wire.answers()
        wire.say("\r\n".join(requests))
        lines = wire.lines()
        answers = [next(lines), next(lines)]
        server.tell(signal.SIGTERM)  # with most of them still under way
        answers += lines
        server.exit_code()
    kept = created(answers)
    assert len(kept) > 1
    with started(*place) as server:
        with closing(NatsStreams(server.ready())) as streams:
            there = set(streams.names())
        server.finish()
    assert kept <= there
