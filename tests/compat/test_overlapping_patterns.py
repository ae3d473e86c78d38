"""Which subjects, filters and transforms may stand beside each other: as at the real server."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.client.blocking import Client, connect
from millstream.subjects.subject import is_pattern
from support import scale
from support.broker import millstream
from support.peers import nats_server

TOKENS = ("a", "b", "c", "*", ">")
STRANGE = ("", "x y", "$JS")


class Both:
    """A client at each server."""

    def __init__(self, ours: Client, theirs: Client) -> None:
        self._clients = (ours, theirs)

    def agree(self, api: str, body: dict[str, Any], undo: str = "") -> bool:
        """Ask both, compare what they refuse, and say whether they did not."""
        errors = []
        for client in self._clients:
            answer = json.loads(_ask(client, api, body))
            errors.append(answer.get("error"))
            if undo and "error" not in answer:
                _ask(client, undo, {})
        if all(is_pattern(one) for one in body.get("subjects", ())):
            assert errors[0] == errors[1], body
        # Of what is no subject at all, the two may find different faults first.
        assert (errors[0] is None) == (errors[1] is None), body
        return errors[0] is None


def _ask(client: Client, api: str, body: dict[str, Any]) -> bytes:
    return client.request(f"$JS.API.{api}", json.dumps(body).encode(), timeout=30).payload


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    with (
        millstream() as ours,
        nats_server(jetstream=True) as theirs,
        connect(ours.url) as one,
        connect(theirs.url) as other,
    ):
        both = Both(one, other)
        subjects = ["a.>", "b.>", "c.>", "a", "b", "c"]
        assert both.agree("STREAM.CREATE.T", {"name": "T", "subjects": subjects})
        yield both


def patterns(chance: random.Random, most: int, *, strange: float = 0.03) -> list[str]:
    def token() -> str:
        return chance.choice(STRANGE if chance.random() < strange else TOKENS)

    count = chance.randint(1, most)
    return [".".join(token() for _ in range(chance.randint(1, 3))) for _ in range(count)]


@pytest.mark.parametrize("seed", range(4))
def test_subjects_of_a_stream_are_refused_for_the_same_reason(both: Both, seed: int) -> None:
    chance, taken = random.Random(seed), 0
    for _ in range(scale.count(100, 2000)):
        config = {"name": "S", "subjects": [f"s.{one}" for one in patterns(chance, 4)]}
        if chance.random() < 0.5:
            config["subjects"] = patterns(chance, 5)  # some of them belong to another stream
        taken += both.agree("STREAM.CREATE.S", config, "STREAM.DELETE.S")
    assert taken


@pytest.mark.parametrize("seed", range(4))
def test_filters_of_a_consumer_are_refused_for_the_same_reason(both: Both, seed: int) -> None:
    chance, taken = random.Random(seed), 0
    for _ in range(scale.count(100, 2000)):
        config = {"name": "C", "filter_subjects": patterns(chance, 5), "mem_storage": True}
        body = {"stream_name": "T", "config": config}
        taken += both.agree("CONSUMER.CREATE.T.C", body, "CONSUMER.DELETE.T.C")
    assert taken


@pytest.mark.parametrize("kind", ["sources", "mirror"])
def test_transforms_of_a_source_are_refused_for_the_same_reason(both: Both, kind: str) -> None:
    chance, taken = random.Random(kind), 0
    for _ in range(scale.count(100, 2000)):
        legal = [one for one in patterns(chance, 4, strange=0) if is_pattern(one)]
        source = {"name": "T", "subject_transforms": [{"src": one, "dest": ""} for one in legal]}
        config = {"name": "S", kind: [source] if kind == "sources" else source}
        taken += both.agree("STREAM.CREATE.S", config, "STREAM.DELETE.S")
    assert taken


def test_consumers_of_a_work_queue_are_refused_for_the_same_reason(both: Both) -> None:
    chance, taken = random.Random("work"), 0
    config = {"name": "W", "subjects": ["w.>"], "retention": "workqueue"}
    assert both.agree("STREAM.CREATE.W", config)
    for at in range(scale.count(150, 1000)):
        filters = [f"w.{one}" for one in patterns(chance, 2, strange=0)]
        asked = {"name": f"C{at}", "filter_subjects": filters, "ack_policy": "explicit"}
        gone = f"CONSUMER.DELETE.W.C{at}" if chance.random() < 0.7 else ""
        body = {"stream_name": "W", "config": asked}
        taken += both.agree(f"CONSUMER.CREATE.W.C{at}", body, gone)
    assert taken
