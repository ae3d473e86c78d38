"""Carrying a plan out, a step at a time."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from millstream.cli.access.server import ServerAccess
from millstream.cli.declared.live import Live
from millstream.cli.declared.plan import PlanStep
from millstream.cli.topics.routers import ask
from millstream.client.jetstream.api import JetStreamApi

Json = dict[str, Any]
_BUCKET = {
    "history": "max_msgs_per_subject",
    "ttl": "max_age",
    "description": "description",
    "max_value_size": "max_msg_size",
    "max_bucket_size": "max_bytes",
    "replicas": "num_replicas",
    "storage": "storage",
}


class Hands:
    """Does what a step says."""

    def __init__(self, js: JetStreamApi, access: ServerAccess, data_dir: Path) -> None:
        self._js = js
        self._access = access
        self._data_dir = data_dir

    def do(self, step: PlanStep) -> None:
        """Carry one step out; raises what the server refused."""
        getattr(self, f"_{step.section}")(step)

    def _streams(self, step: PlanStep) -> None:
        if step.verb == "remove":
            self._js.about("STREAM.DELETE", step.name)
        elif step.verb == "create":
            self._js.about("STREAM.CREATE", step.name, body={**step.after, "name": step.name})
        else:
            config = {**step.before, **step.after, "name": step.name}
            self._js.about("STREAM.UPDATE", step.name, body=config)

    def _consumers(self, step: PlanStep) -> None:
        stream, _, name = step.name.partition("/")
        if step.verb == "remove":
            self._js.about("CONSUMER.DELETE", stream, name)
            return
        usual = {"ack_policy": "explicit", "deliver_policy": "all"}
        config = {**(step.before or usual), **step.after, "name": name, "durable_name": name}
        action = "create" if step.verb == "create" else "update"
        body = {"stream_name": stream, "config": config, "action": action}
        self._js.about("CONSUMER.CREATE", stream, name, body)

    def _kv(self, step: PlanStep) -> None:
        name = f"KV_{step.name}"
        if step.verb == "remove":
            self._js.about("STREAM.DELETE", name)
            return
        wish = {_BUCKET[field]: value for field, value in step.after.items()}
        if step.verb == "change":
            config = self._js.stream(name)["config"]
            self._js.about("STREAM.UPDATE", name, body={**config, **wish})
            return
        window = min(wish.get("max_age") or 120_000_000_000, 120_000_000_000)
        config = {
            "max_msgs_per_subject": 1,
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "allow_direct": True,
            "discard": "new",
            "duplicate_window": window,
            **wish,
            "name": name,
            "subjects": [f"$KV.{step.name}.>"],
        }
        self._js.about("STREAM.CREATE", name, body=config)

    def _topics(self, step: PlanStep, kind: str = "log") -> None:
        with self._access.topics() as topics:
            topic = topics.topic(step.name)
            if step.verb == "remove":
                topic.delete()
            else:
                topic.put(**{"type": kind, **step.before, **step.after})

    def _queues(self, step: PlanStep) -> None:
        self._topics(step, "queue")

    def _routers(self, step: PlanStep) -> None:
        path = f"/v0/routers/{quote(step.name, safe='')}"
        if step.verb == "remove":
            ask(self._access, "DELETE", path)
            return
        known = Live(self._js, self._access).routers().get(step.name, {})
        fields: Json = {field: known[field] for field in ("source", "dest") if field in known}
        ask(self._access, "PUT", f"{path}?strict=true", {**fields, **step.after})

    def _users(self, step: PlanStep) -> None:
        from millstream.server.access.user_file import UserFile

        with UserFile(self._data_dir).changed() as users:
            kept = [each for each in users if each["user"] != step.name]
            old: Json = next((each for each in users if each["user"] == step.name), {})
            if step.verb != "remove":
                made: Json = {**old, **step.after, "user": step.name}
                if not str(made.get("password", "")).startswith("$2"):
                    raise click.ClickException(
                        f"users.{step.name}.password must be a bcrypt hash: "
                        f"`millstream user add {step.name}` asks for a password instead"
                    )
                kept.append(made)
            users[:] = kept
