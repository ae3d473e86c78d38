"""A history: which streams and clients there are, when the broker ends, and what must hold then."""

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # python tests/simulation/history.py SEED…
    sys.path.insert(0, str(Path(__file__).parents[1]))

from simulation.doors import Auditor
from simulation.http_clients import Follower, HttpClient, QueueModel, Worker, Writer
from simulation.model import StreamModel
from simulation.nats_clients import Consumer, CoreClient, NatsClient, Publisher, Remover
from simulation.spark_clients import Spark
from simulation.world import ENDINGS, BrokerEnded, Tally, World, seeded

STEPS = 60  # of a life, about


class History:
    """One seed's world with its streams and clients."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self._made: dict[str, Any] = {}  # what to ask for at the start, by stream
        self._http_made: dict[str, Any] = {}
        self._consumers: list[Consumer] = []
        self.queues: list[QueueModel] = []

    def run(self) -> Tally:
        """Live through several lives of the broker, and check each end of one."""
        world = self.world
        self._people()
        self._live_until_made()
        for _ in range(world.random.choice((1, 2, 2, 3))):
            self._live()
            if world.broker is not None:
                world.end(world.random.choice(ENDINGS))
            self._restart()
        world.tally.lost = sum(model.lost for model in world.models.values())
        return world.tally

    # --- who is there

    def _people(self) -> None:
        world, dice = self.world, self.world.random
        self._admin = NatsClient(world, "admin")
        self._http = HttpClient(world, "manager")
        self.spark = Spark(world)
        self._auditor = Auditor(world, self.spark)
        CoreClient(world, "talker")
        self._jetstream("A", "fsync")
        if dice.random() < 0.6:
            self._jetstream(*dice.choice((("D", "disk"), ("M", "memory"), ("E", "ephemeral"))))
        if dice.random() < 0.4:
            self._jetstream("L", "fsync", keeps=5)
        if dice.random() < 0.4:
            self._bucket()
        if dice.random() < 0.7:
            self._topic("T", dice.choice(("disk", "fsync")))
        if dice.random() < 0.5:
            self._queue("Q", dice.choice(("disk", "fsync")))
        if dice.random() < 0.4:
            model = self._model("OUT", "fsync")
            self._made["OUT"] = {"name": "OUT", "subjects": ["out.>"]}
            self.spark.sinks.append(model)

    def _model(self, name: str, durability: str, keeps: int = 0, per: int = 0) -> StreamModel:
        model = self.world.models[name] = StreamModel(name, durability, keeps, per)
        return model

    def _jetstream(self, name: str, durability: str, keeps: int = 0) -> None:
        dice = self.world.random
        model = self._model(name, durability, keeps)
        config: dict[str, Any] = {
            "name": name,
            "subjects": [f"s.{name}.*"],
            "max_msgs": keeps or -1,
        }
        if durability == "ephemeral":
            config["storage"] = "memory"
        else:
            config["metadata"] = {"millstream.durability": durability}
        self._made[name] = config
        for n in range(dice.choice((1, 2))):
            Publisher(self.world, f"pub{name}{n}", model, f"s.{name}.*")
        if not keeps and dice.random() < 0.4:
            Remover(self.world, f"rem{name}", model)
        if durability != "ephemeral" and dice.random() < 0.7:
            pushed = dice.random() < 0.4
            self._consumers.append(Consumer(self.world, f"con{name}", model, pushed))
        if dice.random() < 0.3:
            Follower(self.world, f"fol{name}", model)

    def _bucket(self) -> None:
        model = self._model("KV_b", "fsync", per=1)
        self._made["KV_b"] = {
            "name": "KV_b", "subjects": ["$KV.b.>"], "max_msgs_per_subject": 1,
            "allow_rollup_hdrs": True, "allow_direct": True, "discard": "new",
        }  # fmt: skip
        Publisher(self.world, "put", model, "$KV.b.k*")

    def _topic(self, name: str, durability: str) -> None:
        model = self._model(name, durability)
        self._http_made[name] = {"durability": durability}
        for n in range(self.world.random.choice((1, 2))):
            Writer(self.world, f"wr{name}{n}", model)
        Follower(self.world, f"fol{name}", model)

    def _queue(self, name: str, durability: str) -> None:
        model = self._model(name, durability)
        durable = self.world.random.random() < 0.5
        self._http_made[name] = {
            "type": "queue", "durability": durability, "leases_durable": durable, "lease_ms": 1000,
        }  # fmt: skip
        queue = QueueModel(model, durable)
        self.queues.append(queue)
        Writer(self.world, f"job{name}", model)
        for n in range(2):
            Worker(self.world, f"work{name}{n}", queue)

    # --- lives

    def _live_until_made(self) -> None:
        while True:
            self.world.start()
            with suppress(BrokerEnded):
                self._make()
                return

    def _make(self) -> None:
        """Create everything; what was told to be there stays, so that this is done once."""
        for config in self._made.values():
            told = json.loads(self._admin.ask(f"$JS.API.STREAM.CREATE.{config['name']}", config))
            assert "error" not in told, told
        for topic, config in self._http_made.items():
            status, told = self._http.ask("PUT", f"/v0/topics/{topic}", config)
            assert status in (200, 201), told
        for consumer in self._consumers:
            consumer.make()

    def _live(self) -> None:
        world, dice = self.world, self.world.random
        if dice.random() < 0.6:
            world.disk.crash_at = world.disk.calls + dice.randint(1, 120)
        if dice.random() < 0.3:
            world.settle()
        for _ in range(dice.randint(STEPS // 2, STEPS * 2)):
            if world.broker is None:
                return
            world.step()

    def _restart(self) -> None:
        """Start again, and compare everything with what clients were told."""
        while True:
            self.world.start()
            with suppress(BrokerEnded):
                self.world.quiet()
                for model in self.world.models.values():
                    self._auditor.look(model)
                return


def run(seed: int) -> tuple[Tally, str]:
    """Run the history of a seed; return what happened and the hash of its trace."""
    with seeded(seed):
        history = History(seed)
        try:
            return history.run(), history.world.trace_hash
        finally:
            history.world.close()


if __name__ == "__main__":
    for given in sys.argv[1:]:
        print(run(int(given))[1])
