"""``millstream open``: the dashboard, in a browser."""

import click

from millstream.cli.access.options import json_option, over_http
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.operator.monitor import health
from millstream.cli.shown.output import tell


@command("millstream open", "millstream open --print")
@click.option("--print", "only_print", is_flag=True, help="Print the address and open nothing.")
@over_http
@json_option
def open_(only_print: bool, access: ServerAccess, as_json: bool) -> None:
    """Open the server's dashboard in a browser."""
    health(access)  # says what is wrong where nobody answers
    url = f"{access.place().url}/"
    opened = False
    if not only_print:
        import webbrowser  # here: it looks for browsers as it is imported

        opened = webbrowser.open(url)
    text = f"opened {url}" if opened else url
    tell({"url": url, "opened": opened}, as_json, text)
    if not opened and not only_print:
        click.echo("no browser could be started here: open the address in yours", err=True)
