"""``server info``."""

from typing import Any

from millstream.cli.access.options import json_option, over_http
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.operator.monitor import page
from millstream.cli.shown import figures
from millstream.cli.shown.output import tell
from millstream.cli.shown.table import facts

Json = dict[str, Any]


@command("millstream server info", "millstream server info --http-url http://other:8222 --json")
@over_http
@json_option
def info(access: ServerAccess, as_json: bool) -> None:
    """Show a server at a glance, as its monitoring pages describe it."""
    told = page(access, "/varz")
    tell(told, as_json, facts(f"Server {told['server_name']}", _pairs(told)))


def _pairs(told: Json) -> list[tuple[str, object]]:
    stored = (told.get("jetstream") or {}).get("stats") or {}
    return [
        ("version", told["version"]),
        ("id", told["server_id"]),
        ("up for", told.get("uptime")),
        ("clients", f"{told.get('host')}:{told.get('port')}"),
        ("asks who clients are", bool(told.get("auth_required"))),
        ("tls", bool(told.get("tls_required"))),
        ("connections", f"{told['connections']:,} now, {told['total_connections']:,} in all"),
        ("subscriptions", told.get("subscriptions")),
        ("received", f"{told['in_msgs']:,} messages, {figures.size(told['in_bytes'])}"),
        ("sent", f"{told['out_msgs']:,} messages, {figures.size(told['out_bytes'])}"),
        ("slow consumers", told.get("slow_consumers")),
        ("memory", figures.size(told.get("mem", 0))),
        ("cpu", f"{told.get('cpu', 0):.1f} %"),
        ("largest message", figures.size(told.get("max_payload", 0))),
        ("stored", figures.size(stored.get("storage", 0)) if stored else None),
        ("accounts", stored.get("accounts")),
    ]
