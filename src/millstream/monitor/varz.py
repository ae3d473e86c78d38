"""/varz: the server at a glance, under nats-server's names; only what is true is in it."""

import os
import resource
from datetime import UTC, datetime
from typing import Any

from millstream import __version__
from millstream.http.request import Request
from millstream.http.response import Response, json_response
from millstream.monitor.facts import Facts

COUNTERS = (
    "connections",
    "total_connections",
    "in_msgs",
    "in_bytes",
    "out_msgs",
    "out_bytes",
    "slow_consumers",
    "subscriptions",
)


async def varz(request: Request, facts: Facts) -> Response:
    """Show identity, limits, use of the machine and traffic."""
    return json_response(describe(facts))


def describe(facts: Facts) -> dict[str, Any]:
    """Return the object that /varz answers."""
    now_ns, traffic = facts.clock.time_ns(), facts.traffic()
    shown: dict[str, Any] = {
        "server_id": facts.server_id,
        "server_name": facts.server_name,
        "version": facts.nats_version,
        "millstream": __version__,
        "proto": 1,
        "host": facts.host,
        "port": facts.port,
        "max_connections": facts.max_connections,
        "http_host": facts.http_host,
        "http_port": facts.http_port,
        "max_control_line": 4096,
        "max_payload": facts.max_payload,
        "max_pending": facts.max_pending,
        "jetstream": _jetstream(facts),
        "start": _time(facts.started_ns),
        "now": _time(now_ns),
        "uptime": uptime(now_ns - facts.started_ns),
        "mem": _resident_bytes(),
        "cores": os.cpu_count() or 1,
    }
    shown |= {name: traffic[name] for name in COUNTERS if name in traffic}
    return shown


def uptime(elapsed_ns: int) -> str:
    """Return a duration as nats-server writes it: 1d2h3m4s, without leading zeros."""
    seconds = max(elapsed_ns, 0) // 1_000_000_000
    parts, shown = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s")), ""
    for size, unit in parts:
        count, seconds = divmod(seconds, size)
        if count or shown or unit == "s":
            shown += f"{count}{unit}"
    return shown


def _jetstream(facts: Facts) -> dict[str, Any]:
    if facts.catalog is None:
        return {}
    states = [stream.state() for stream in facts.catalog.streams()]
    return {
        "stats": {
            "storage": sum(state.bytes for state in states),
            "streams": len(states),
            "messages": sum(state.messages for state in states),
        }
    }


def _time(ns: int) -> str:
    seconds, rest = divmod(ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux: the peak is the nearest figure there is
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
