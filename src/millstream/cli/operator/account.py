"""``account info``: what the account of this connection uses and may use."""

from typing import Any

from millstream.cli.access.options import connected, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.shown import figures
from millstream.cli.shown.output import tell
from millstream.cli.shown.table import facts

Json = dict[str, Any]


@command("millstream account info", "millstream account info --json")
@connected
@json_option
def info(access: ServerAccess, as_json: bool) -> None:
    """Show how much the account of this connection stores, and how much it may."""
    with access.jetstream() as js:
        told = js.ask("INFO")
        server = js.client.info
    pairs = [
        ("server", f"{server.server_name or server.server_id}, version {server.version}"),
        ("domain", told.get("domain")),
        ("streams", _of(told["streams"], told["limits"].get("max_streams", -1))),
        ("consumers", _of(told["consumers"], told["limits"].get("max_consumers", -1))),
        ("on disk", _sized(told["storage"], told["limits"].get("max_storage", -1))),
        ("in memory", _sized(told["memory"], told["limits"].get("max_memory", -1))),
        ("requests", told.get("api", {}).get("total")),
        ("refused", told.get("api", {}).get("errors")),
    ]
    tell(told, as_json, facts("Account", pairs))


def _of(used: int, most: int) -> str:
    return f"{used:,}" if most < 0 else f"{used:,} of {most:,}"


def _sized(used: int, most: int) -> str:
    return figures.size(used) if most < 0 else f"{figures.size(used)} of {figures.size(most)}"
