"""Live: what a server has now, section by section, in the words of the file."""

from typing import Any

from millstream.cli.access.server import ServerAccess
from millstream.cli.declared.document import QUEUE_FIELDS, SECTIONS, TOPIC_FIELDS
from millstream.cli.topics.routers import ask
from millstream.client.jetstream.api import JetStreamApi

Json = dict[str, Any]
MADE_OVER_HTTP = "millstream.type"
STREAM_DEFAULTS: Json = {
    "retention": "limits",
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 0,
    "max_msgs_per_subject": -1,
    "max_msg_size": -1,
    "discard": "old",
    "storage": "file",
    "num_replicas": 1,
    "duplicate_window": 120_000_000_000,
    "compression": "none",
    "allow_direct": False,
    "mirror_direct": False,
    "sealed": False,
    "deny_delete": False,
    "deny_purge": False,
    "allow_rollup_hdrs": False,
    "consumer_limits": {},
    "first_seq": 0,
    "allow_msg_ttl": False,
    "no_ack": False,
    "allow_atomic": False,
    "allow_msg_counter": False,
    "allow_msg_schedules": False,
    "allow_batched": False,
    "persist_mode": "default",
}
CONSUMER_DEFAULTS: Json = {
    "deliver_policy": "all",
    "ack_policy": "explicit",
    "ack_wait": 30_000_000_000,
    "max_deliver": -1,
    "replay_policy": "instant",
    "max_waiting": 512,
    "max_ack_pending": 1000,
    "num_replicas": 0,
    "mem_storage": False,
    "headers_only": False,
    "priority_policy": "none",
}


def without_defaults(config: Json, defaults: Json, fields: frozenset[str]) -> Json:
    """Return what a file would say: nothing that goes without saying."""
    shown = {}
    for field, value in config.items():
        if field not in fields or value in (None, "", [], {}):
            continue
        if field == "metadata":
            value = {k: v for k, v in value.items() if not k.startswith(("_nats.", "millstream."))}
            if not value:
                continue
        if field not in defaults or defaults[field] != value:
            shown[field] = value
    return shown


class Live:
    """Asks a server for what it has; sections over HTTP need millstream."""

    def __init__(self, js: JetStreamApi, access: ServerAccess) -> None:
        self._js = js
        self._access = access
        self._streams: list[Json] | None = None

    def section(self, name: str) -> dict[str, Json]:
        """Return the things of a section by name, with their whole configurations."""
        found: dict[str, Json] = getattr(self, name)()
        return found

    def _all(self) -> list[Json]:
        if self._streams is None:
            self._streams = [each["config"] for each in self._js.streams()]
        return self._streams

    def streams(self) -> dict[str, Json]:
        """Return the streams that are nothing else: no bucket, store or topic."""
        return {
            each["name"]: each
            for each in self._all()
            if not each["name"].startswith(("KV_", "OBJ_"))
            and MADE_OVER_HTTP not in (each.get("metadata") or {})
        }

    def consumers(self) -> dict[str, Json]:
        """Return the durable consumers of those streams, by STREAM/CONSUMER."""
        return {
            f"{stream}/{each['name']}": each["config"]
            for stream in self.streams()
            for each in self._js.consumers(stream)
            if each["config"].get("durable_name")
            and not (each["config"].get("metadata") or {}).get("millstream.reader")
        }

    def kv(self) -> dict[str, Json]:
        """Return the buckets."""
        return {
            each["name"][3:]: {
                "history": each["max_msgs_per_subject"],
                "ttl": each["max_age"],
                "max_value_size": each["max_msg_size"],
                "max_bucket_size": each["max_bytes"],
                "description": each.get("description", ""),
                "storage": each["storage"],
                "replicas": each["num_replicas"],
            }
            for each in self._all()
            if each["name"].startswith("KV_")
        }

    def topics(self) -> dict[str, Json]:
        """Return the topics that were made over HTTP and are logs."""
        return self._made_over_http("log")

    def queues(self) -> dict[str, Json]:
        """Return the queues."""
        return self._made_over_http("queue")

    def _made_over_http(self, kind: str) -> dict[str, Json]:
        names = [
            each["name"]
            for each in self._all()
            if (each.get("metadata") or {}).get(MADE_OVER_HTTP) == kind
        ]
        with self._access.topics() as topics:
            return {name: topics.topic(name).state().config for name in names}

    def routers(self) -> dict[str, Json]:
        """Return the routers."""
        listed = ask(self._access, "GET", "/v0/routers?page_size=1000")["routers"]
        return {each["router"]: each for each in listed}

    def exported(self, name: str) -> dict[str, Json]:
        """Return a section as a file would have it."""
        defaults: dict[str, Json] = {
            "streams": STREAM_DEFAULTS,
            "consumers": CONSUMER_DEFAULTS,
            "kv": {"history": 1, "ttl": 0, "max_value_size": -1, "max_bucket_size": -1,
                   "storage": "file", "replicas": 1},
            "topics": _topic_defaults(),
            "queues": _topic_defaults(),
        }  # fmt: skip
        return {
            each: without_defaults(config, defaults.get(name, {}), SECTIONS[name])
            for each, config in sorted(self.section(name).items())
        }


def _topic_defaults() -> Json:
    return {
        "ttl_ms": 0,
        "cap_records": 0,
        "cap_bytes": 0,
        "discard": "old",
        "durable": False,
        "auto_priority": True,
        "auto_create": True,
        "idempotency_window_ms": 120_000,
        "dedupe_node": True,
        "lease_ms": 30_000,
        "claim_jitter_ms": 0,
        "max_deliveries": 0,
        "leases_durable": False,
    }


__all__ = ["QUEUE_FIELDS", "TOPIC_FIELDS", "Live", "without_defaults"]
