"""What the dashboard looks at, put together from the parts of the server."""

from functools import partial
from typing import TYPE_CHECKING, Any

from millstream.dashboard.audit import Audit
from millstream.dashboard.live_feed import LiveFeed
from millstream.dashboard.masking import Masking
from millstream.dashboard.routes import dashboard_routes
from millstream.dashboard.sampler import Sampler
from millstream.http.routes import Route
from millstream.monitor import machine
from millstream.monitor.facts import Facts
from millstream.monitor.routes import close_route
from millstream.nats.jetstream import shapes
from millstream.server.figures import disk_of
from millstream.store.wal.meter import SYNC_BOUNDS_US
from millstream.topics.api.browse import Browse
from millstream.topics.api.consumers import ConsumerCalls
from millstream.topics.api.flow import FlowCalls
from millstream.topics.api.messages import MessageCalls
from millstream.topics.api.whoami import shown_key
from millstream.topics.routes import ExtraCalls, topics_routes

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.accounts.permissions import Rule
    from millstream.consumers.registry import Registry
    from millstream.kernel._hub import Hub
    from millstream.nats.accounts.accounts import Accounts
    from millstream.nats.authenticator import Authenticator
    from millstream.server.access.http_gate import HttpGate
    from millstream.topics.context import Topics

DISK_EVERY = 10  # looks: the file system is asked rarely, as it may be slow


class ServerFigures:
    """The whole server at one moment, in numbers that charts are drawn from."""

    def __init__(self, facts: Facts, topics: "Topics", directory: str) -> None:
        self._facts = facts
        self._topics = topics
        self._directory = directory
        self._looks = 0
        self._disk = (0, 0)

    def __call__(self) -> dict[str, Any]:
        """Return totals since the start, and what is so now."""
        facts, measures = self._facts, self._topics.scheduler.measures
        moved, http = facts.traffic(), facts.http_traffic
        if self._looks % DISK_EVERY == 0:
            self._disk = disk_of(self._directory)
        self._looks += 1
        shown: dict[str, Any] = {
            "uptime": (facts.clock.time_ns() - facts.started_ns) // 1_000_000,
            "nats_in_msgs": moved["in_msgs"],
            "nats_out_msgs": moved["out_msgs"],
            "nats_in_bytes": moved["in_bytes"],
            "nats_out_bytes": moved["out_bytes"],
            "slow_consumers": moved["slow_consumers"],
            "connections": moved["connections"],
            "http_requests": http.get("requests", 0),
            "http_in_bytes": http.get("in_bytes", 0),
            "http_out_bytes": http.get("out_bytes", 0),
            "http_streams": self._topics.sse_connections,
            "cpu": facts.cpu(),
            "rss": machine.resident_bytes(),
            "disk_used": self._disk[0],
            "disk_total": self._disk[1],
            "pressure": measures.pressure,
            "rung": measures.rung,
            "problems": facts.health(),
        }
        if facts.loop is not None:
            shown["loop_ms"] = round(facts.loop.take_longest() * 1000, 3)
        if facts.wal is not None:
            shown["syncs"] = facts.wal.syncs
            shown["sync_us"] = facts.wal.sync_us
            shown["sync_counts"] = list(facts.wal.sync_counts)
            shown["sync_bounds_us"] = list(SYNC_BOUNDS_US)
            shown["wal_bytes"] = facts.wal.bytes_written
            shown["wal_frames"] = facts.wal.frames
            shown["backlog_bytes"] = facts.storage().get("backlog_bytes", 0)
        return shown


def access_of(reception: "Authenticator", gate: "HttpGate | None") -> dict[str, Any]:
    """Return who may come in, without any secret."""
    accounts: Accounts = reception.accounts
    keys = gate.keys.all() if gate is not None else ()
    return {
        "auth_required": gate is not None and gate.authorize.required,
        "accounts": [
            {
                "name": space.name,
                "label": space.account.label,
                "jetstream": space.account.jetstream,
                "system": space is accounts.system,
                "exports": len(space.account.exports),
                "imports": len(space.account.imports),
            }
            for space in accounts
        ],
        "users": [
            {
                "name": user.name or user.nkey,
                "account": user.account,
                "kind": "nkey" if user.nkey else "password",
                "publish": _rule(user.permissions.publish),
                "subscribe": _rule(user.permissions.subscribe),
            }
            for user in reception.credentials.listed
        ],
        "keys": [
            {
                "id": key.id,
                "account": key.account,
                "scopes": sorted(key.scopes),
                "prefixes": list(key.prefixes),
            }
            for key in keys
        ],
    }


def _is_guarded(gate: "HttpGate | None") -> bool:
    return gate is not None and gate.authorize.required


def _rule(rule: "Rule") -> dict[str, Any]:
    allow = None if rule.allow is None else [each.pattern for each in rule.allow]
    return {"allow": allow, "deny": [each.pattern for each in rule.deny]}


class PageParts:
    """The API that people use beside programs, and the page over it."""

    def __init__(
        self,
        facts: Facts,
        topics: "Topics",
        registry: "Registry",
        hub: "Hub",
        reception: "Authenticator",
        gate: "HttpGate | None",
        directory: str,
        masking: Masking,
    ) -> None:
        self._facts = facts
        self._topics = topics
        interests = reception.accounts.interests
        consumers = ConsumerCalls(topics, registry, shapes)
        self._extra = ExtraCalls(
            Browse(masking),
            consumers,
            MessageCalls(hub, interests, topics.clock, facts.max_payload),
            FlowCalls(topics, registry, consumers),
        )
        self.sampler = Sampler(
            topics.clock,
            ServerFigures(facts, topics, directory),
            topics.directory.visible,
            registry.count,
        )
        self._feed = LiveFeed(self.sampler, topics.live, topics.stop_signal)
        self._access: Callable[[], dict[str, Any]] = partial(access_of, reception, gate)
        self._guarded: Callable[[], bool]
        self._guarded = guarded = (
            (lambda: gate.authorize.required) if gate is not None else (lambda: False)
        )
        self._audit = Audit(topics.catalog, topics.clock, guarded, shown_key)
        topics.catalog.listen(lambda stream, alive: self.sampler.changed())

    def routes(self) -> list[Route]:
        """Return the HTTP API and the page, with changes written down."""
        table = [
            *topics_routes(self._topics, self._extra),
            *dashboard_routes(self._feed, self._access, self._guarded),
            close_route(self._facts),
        ]
        return [self._audit.over(route) for route in table]
