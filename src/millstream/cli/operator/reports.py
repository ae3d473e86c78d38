"""``server report connections``, ``streams`` and ``accounts``."""

from typing import Any

import click

from millstream.cli.access.options import json_option, over_http
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.operator.monitor import page
from millstream.cli.shown import figures
from millstream.cli.shown.output import tell_rows

Json = dict[str, Any]
SORTS = ["cid", "subs", "pending", "msgs_to", "msgs_from", "bytes_to", "bytes_from", "idle", "rtt"]


@command(
    "millstream server report connections", "millstream server report connections --sort msgs_to"
)
@click.option("--sort", type=click.Choice(SORTS), default="cid", show_default=True)
@click.option("--top", default=50, show_default=True, type=click.IntRange(min=1), help="Most rows.")
@over_http
@json_option
def connections(sort: str, top: int, access: ServerAccess, as_json: bool) -> None:
    """List the connections of a server."""
    found: list[Json] = page(access, "/connz", sort=sort, limit=top, auth=1)["connections"]
    rows = [
        (
            each["cid"],
            each.get("name", ""),
            f"{each['ip']}:{each['port']}",
            each.get("lang", ""),
            each.get("uptime", ""),
            each.get("rtt", ""),
            each["subscriptions"],
            each["in_msgs"],
            each["out_msgs"],
            figures.size(each["pending_bytes"]),
        )
        for each in found
    ]
    headings = ["ID", "NAME", "ADDRESS", "LANGUAGE", "UP FOR", "RTT", "SUBSCRIPTIONS"]
    headings += ["FROM", "TO", "PENDING"]
    tell_rows(found, as_json, headings, rows, "no connections")


@command("millstream server report streams", "millstream server report streams --json")
@over_http
@json_option
def streams(access: ServerAccess, as_json: bool) -> None:
    """List the streams of every account of a server."""
    told = page(access, "/jsz", accounts=1, streams=1, config=1)
    found = [
        {"account": account["name"], **stream}
        for account in told.get("account_details") or []
        for stream in account.get("stream_detail") or []
    ]
    rows = [
        (
            each["account"],
            each["name"],
            each["state"]["messages"],
            figures.size(each["state"]["bytes"]),
            each["state"]["consumer_count"],
            figures.since(each["state"]["last_ts"]) if each["state"]["last_seq"] else "never",
        )
        for each in found
    ]
    headings = ("ACCOUNT", "STREAM", "MESSAGES", "SIZE", "CONSUMERS", "LAST MESSAGE")
    tell_rows(found, as_json, headings, rows, "no streams yet")


@command("millstream server report accounts", "millstream account report --json")
@over_http
@json_option
def accounts(access: ServerAccess, as_json: bool) -> None:
    """List the accounts of a server and their traffic."""
    found: list[Json] = page(access, "/accstatz", unused=1)["account_statz"]
    rows = [
        (
            each["acc"],
            each["conns"],
            each["num_subscriptions"],
            each["received"]["msgs"],
            figures.size(each["received"]["bytes"]),
            each["sent"]["msgs"],
            figures.size(each["sent"]["bytes"]),
            each.get("slow_consumers", 0),
        )
        for each in found
    ]
    headings = ("ACCOUNT", "CONNECTIONS", "SUBSCRIPTIONS", "FROM", "SIZE", "TO", "SIZE", "SLOW")
    tell_rows(found, as_json, headings, rows, "no accounts")
