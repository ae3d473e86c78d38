"""Looks at a whole stream through each door: what it shows, and what it says is lost."""

import base64
import json

from simulation.http_clients import HttpClient
from simulation.model import Looked, StreamModel, Violation
from simulation.nats_clients import NatsClient, as_record
from simulation.spark_clients import Spark
from simulation.world import World

PAGES = 1000
MOST_NAMED = 10_000  # sequences that STREAM.INFO names


class Auditor:
    """Somebody who looks at everything, by NATS, by HTTP and by Spark."""

    def __init__(self, world: World, spark: Spark) -> None:
        self._nats = NatsClient(world, "auditor")
        self._http = HttpClient(world, "auditing")
        self._spark = spark
        self._world = world

    def look(self, model: StreamModel) -> None:
        """Compare each door with the model, and the doors with each other."""
        looks = [self.over_nats(model.name), self.over_http(model.name)]
        if self._world.random.random() < 0.5:
            looks.append(self._spark.look(model.name))
        for looked in looks:
            model.check(looked)
            if looked.records != looks[0].records:
                raise Violation(f"{looked.door} and {looks[0].door} differ about {model.name}")
        self._world.note("look", model.name, sorted(looks[0].records))
        model.take(looks[0])

    def over_nats(self, stream: str) -> Looked:
        """Read every message by request."""
        info = json.loads(self._nats.ask(f"$JS.API.STREAM.INFO.{stream}"))
        if "error" in info:
            raise Violation(f"stream {stream}: {info['error']}")
        state = info["state"]
        records: dict[int, str] = {}
        seq = state["first_seq"]
        for _ in range(PAGES):
            asked = {"seq": max(seq, 1), "next_by_subj": ">"}
            told = json.loads(self._nats.ask(f"$JS.API.STREAM.MSG.GET.{stream}", asked))
            if "error" in told:
                break
            message = told["message"]
            seq = message["seq"] + 1
            records[message["seq"]] = as_record(base64.b64decode(message.get("data", "")))
        if len(records) != state["messages"]:
            raise Violation(f"{stream} says {state['messages']} messages, shows {len(records)}")
        named = state.get("lost", {}).get("msgs", [])
        lost = set(named)
        if len(named) == MOST_NAMED:
            lost |= set(range(named[-1], state["last_seq"] + 1)) - records.keys()
        return Looked("NATS", records, lost, state["last_seq"])

    def over_http(self, topic: str) -> Looked:
        """Read by diff, from the beginning."""
        records: dict[int, str] = {}
        lost: set[int] = set()
        position = 0
        for _ in range(PAGES):
            body = {"from_seq": position, "limit": 100}
            status, told = self._http.ask("POST", f"/v0/topics/{topic}/diff", body)
            if status != 200:
                raise Violation(f"diff of {topic}: {status} {told}")
            if told["tombstone"]:
                gap = told["tombstone"]
                lost |= set(range(gap["gap_from"], gap["gap_to"] + 1))
            for record in told["records"]:
                records[record["$seq"]] = str(record["data"])
            if told["next_from_seq"] <= position and not told["records"]:
                break
            position = told["next_from_seq"]
            if told["caught_up"]:
                break
        return Looked("HTTP", records, lost - records.keys(), told["head_seq"])
