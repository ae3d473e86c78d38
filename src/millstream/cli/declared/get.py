"""``millstream get``: what a server has, as a file that ``apply`` takes."""

from typing import Any

import click

from millstream.cli.access.options import over_both
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command

Json = dict[str, Any]
KINDS = ["streams", "consumers", "kv", "topics", "queues", "routers"]


@command("millstream get -o yaml > server.yaml", "millstream get streams consumers -o json")
@click.argument("kinds", nargs=-1, type=click.Choice(KINDS), metavar="[KIND]...")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", help="Format.")
@click.option("--json", "as_json", is_flag=True, help="As --output json.")
@over_both
def get(kinds: tuple[str, ...], output: str, as_json: bool, access: ServerAccess) -> None:
    """Write what a server has as a file for `millstream apply`: all, or only some KINDs.

    KIND is streams, consumers, kv, topics, queues or routers. Values that are the default are
    left out. From another NATS server it gets streams, consumers and kv.
    """
    from millstream.cli.declared.document import yaml_module
    from millstream.cli.declared.live import Live
    from millstream.client.errors import ClientError

    told: Json = {}
    with access.jetstream() as js:
        live = Live(js, access)
        for kind in kinds or KINDS:
            try:
                found = live.exported(kind)
            except ClientError:
                if kinds or kind != "routers":
                    raise
                continue  # another server has no routers
            if found:
                told[kind] = nested(found) if kind == "consumers" else found
    if as_json or output == "json":
        import json

        click.echo(json.dumps(told, indent=2, ensure_ascii=False))
    else:
        click.echo(yaml_module().safe_dump(told, sort_keys=False, allow_unicode=True), nl=False)


def nested(found: dict[str, Json]) -> dict[str, dict[str, Json]]:
    """Return consumers below their streams."""
    made: dict[str, dict[str, Json]] = {}
    for name, config in found.items():
        stream, _, consumer = name.partition("/")
        made.setdefault(stream, {})[consumer] = config
    return made
