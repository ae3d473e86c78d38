"""``stream copy``: a stream like another, with its records if you want."""

import time
from typing import TYPE_CHECKING, Any

import click

from millstream.cli.access.options import connected, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.shown.output import tell
from millstream.cli.shown.progress import ProgressLine
from millstream.cli.streams.listing import shown
from millstream.cli.streams.stream_options import STREAM_FIELDS, check_fields, stream_options

if TYPE_CHECKING:
    from millstream.client.jetstream.api import JetStreamApi

Json = dict[str, Any]
STALLED = 30.0  # seconds without a record after which copying counts as stuck


@command(
    "millstream stream copy ORDERS ORDERS-TEST --subjects 'test.orders.>'",
    "millstream stream copy ORDERS ORDERS-2025 --records",
)
@click.argument("source")
@click.argument("name", metavar="DESTINATION")
@stream_options
@click.option("--records", is_flag=True, help="Copy the records too.")
@connected
@json_option
def copy(
    source: str, name: str, wish: Json, records: bool, access: ServerAccess, as_json: bool
) -> None:
    """Create DESTINATION with the configuration of SOURCE, changed by the options.

    Two streams cannot capture one subject: without --subjects the new one captures its own
    name. With --records the server copies every record of SOURCE; their sequences may differ.
    """
    check_fields(wish, STREAM_FIELDS, "a stream")
    with access.jetstream() as js:
        of = js.stream(source)
        config = {**of["config"], "subjects": [], **wish, "name": name}
        for field in ("sealed", "mirror", "sources"):
            if field not in wish:
                config.pop(field, None)
        if not config["subjects"]:
            del config["subjects"]
        sources = config.get("sources", [])
        feed = [{"name": source}, *sources] if records else sources
        js.about("STREAM.CREATE", name, body={**config, "sources": feed})
        if records:
            _wait(js, name, int(of["state"]["messages"]))
            js.about("STREAM.UPDATE", name, body={**config, "sources": sources})
        made = js.stream(name)
    tell(made, as_json, shown(made))


def _wait(js: "JetStreamApi", name: str, total: int) -> None:
    """Wait until the server has copied all records; one that stands still is reported."""
    seen, since = -1, time.monotonic()
    with ProgressLine(f"copying into {name}", total) as progress:
        while (done := int(js.stream(name)["state"]["messages"])) < total:
            progress.reach(done)
            if done != seen:
                seen, since = done, time.monotonic()
            elif time.monotonic() - since > STALLED:
                raise click.ClickException(
                    f"{name} stands at {done:,} of {total:,} records: its limits may hold fewer; "
                    f"`millstream stream info {name}` shows them"
                )
            time.sleep(0.05)
