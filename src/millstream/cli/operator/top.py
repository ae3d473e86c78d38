"""``millstream top``: rates, streams, consumers and connections, live in a terminal."""

import sys
import time
from typing import Any

import click

from millstream.cli.access.options import json_option, over_http
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.operator.monitor import page
from millstream.cli.shown import figures
from millstream.cli.shown.output import as_text
from millstream.cli.shown.table import table

Json = dict[str, Any]
CLEAR = "\x1b[H\x1b[2J"


@command("millstream top", "millstream top --interval 5 --rows 20", "millstream top --once --json")
@click.option("--interval", default=1.0, show_default=True, type=click.FloatRange(min=0.1))
@click.option("--rows", default=10, show_default=True, type=click.IntRange(min=1), help="Per list.")
@click.option("--once", is_flag=True, help="Show one interval and end.")
@over_http
@json_option
def top(interval: float, rows: int, once: bool, access: ServerAccess, as_json: bool) -> None:
    """Watch a server: its rates, and the busiest streams, consumers and connections.

    Works with any NATS server that serves monitoring over HTTP. Ctrl-C ends it.
    """
    before = Look(access)
    while True:
        time.sleep(interval)
        now = Look(access)
        if as_json:
            click.echo(as_text(now.since(before)))
        else:
            shown = now.shown(before, rows)
            click.echo(shown if once or not sys.stdout.isatty() else CLEAR + shown)
        sys.stdout.flush()
        if once:
            return
        before = now


class Look:
    """A server at one moment."""

    def __init__(self, access: ServerAccess) -> None:
        self.at = time.monotonic()
        self.server = page(access, "/varz")
        self.connections: list[Json] = page(access, "/connz", limit=256)["connections"]
        stored = page(access, "/jsz", accounts=1, streams=1, consumers=1)
        self.streams = [
            stream
            for account in stored.get("account_details") or []
            for stream in account.get("stream_detail") or []
        ]

    def since(self, before: "Look") -> Json:
        """Return the rates a second since an earlier look."""
        passed = max(self.at - before.at, 1e-6)
        fields = ("in_msgs", "out_msgs", "in_bytes", "out_bytes")
        rates = {
            f"{field}_per_s": round((self.server[field] - before.server[field]) / passed, 1)
            for field in fields
        }
        return {
            "connections": self.server["connections"],
            "cpu": self.server.get("cpu", 0),
            "mem": self.server.get("mem", 0),
            **rates,
            "streams": [
                {"stream": name, "messages": state["messages"], "per_s": rate}
                for name, state, rate in self._stream_rates(before)
            ],
        }

    def _stream_rates(self, before: "Look") -> list[tuple[str, Json, float]]:
        passed = max(self.at - before.at, 1e-6)
        last = {each["name"]: each["state"]["last_seq"] for each in before.streams}
        found = []
        for each in self.streams:
            came = each["state"]["last_seq"] - last.get(each["name"], each["state"]["last_seq"])
            found.append((each["name"], each["state"], round(came / passed, 1)))
        return sorted(found, key=lambda row: (-row[2], row[0]))

    def shown(self, before: "Look", rows: int) -> str:
        """Return the screen."""
        return "\n\n".join(
            [
                self._head(before),
                self._streams(before, rows),
                self._consumers(rows),
                self._connections(before, rows),
            ]
        )

    def _head(self, before: "Look") -> str:
        told, rates = self.server, self.since(before)
        sizes = [figures.size(int(rates[f"{side}_bytes_per_s"])) for side in ("in", "out")]
        return (
            f"{told['server_name']}  {told['version']}  up {told.get('uptime', '?')}   "
            f"cpu {told.get('cpu', 0):.0f} %  memory {figures.size(told.get('mem', 0))}   "
            f"connections {told['connections']:,}  slow {told.get('slow_consumers', 0)}\n"
            f"in  {rates['in_msgs_per_s']:,.0f} msgs/s  {sizes[0]}/s   "
            f"out  {rates['out_msgs_per_s']:,.0f} msgs/s  {sizes[1]}/s"
        )

    def _streams(self, before: "Look", rows: int) -> str:
        cells = [
            (name, state["messages"], figures.size(state["bytes"]), rate)
            for name, state, rate in self._stream_rates(before)[:rows]
        ]
        return table(("STREAM", "MESSAGES", "SIZE", "IN/S"), cells)

    def _consumers(self, rows: int) -> str:
        found = [
            (stream["name"], each["name"], each["num_pending"], each["num_ack_pending"])
            for stream in self.streams
            for each in stream.get("consumer_detail") or []
        ]
        found.sort(key=lambda row: -row[2])
        return table(("STREAM", "CONSUMER", "PENDING", "IN FLIGHT"), found[:rows])

    def _connections(self, before: "Look", rows: int) -> str:
        passed = max(self.at - before.at, 1e-6)
        last = {each["cid"]: each for each in before.connections}
        cells = []
        for each in self.connections:
            old = last.get(each["cid"], each)
            rates = [round((each[f] - old[f]) / passed, 1) for f in ("in_msgs", "out_msgs")]
            name = each.get("name") or each.get("lang", "")
            cells.append((each["cid"], name, f"{each['ip']}:{each['port']}", *rates))
        cells.sort(key=lambda row: -(row[3] + row[4]))
        return table(("ID", "NAME", "ADDRESS", "FROM/S", "TO/S"), cells[:rows])
