"""``millstream version``: which one is this?"""

import json
import platform

import click

from millstream import __version__
from millstream.cli.access.options import json_option
from millstream.cli.command import command


@command("millstream version", "millstream version --json")
@json_option
def version(as_json: bool) -> None:
    """Print the version."""
    python = platform.python_version()
    if as_json:
        click.echo(json.dumps({"version": __version__, "python": python}))
    else:
        click.echo(f"millstream {__version__} (Python {python})")
