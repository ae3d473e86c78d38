"""``router ls``, ``info``, ``add`` and ``rm``."""

from typing import Any
from urllib.parse import quote

import click

from millstream.cli.access.options import force_option, json_option, over_http
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.shown.output import sure, tell, tell_rows
from millstream.cli.shown.table import facts

Json = dict[str, Any]


def ask(access: ServerAccess, method: str, path: str, body: object = None) -> Json:
    """Return the answer of the HTTP API to one request."""
    import msgspec

    from millstream.client.topic_calls import JSON, Call

    link = access.link()
    sent = None if body is None else msgspec.json.encode(body)
    try:
        told: Json = link.call(Call(method, path, dict[str, Any], sent, JSON if sent else None))
    finally:
        link.close()
    told.pop("performance", None)
    return told


@command("millstream router ls", "millstream router ls --json")
@over_http
@json_option
def ls(access: ServerAccess, as_json: bool) -> None:
    """List the routers."""
    found: list[Json] = ask(access, "GET", "/v0/routers?page_size=1000")["routers"]
    rows = [
        (
            each["router"],
            each["source"],
            each["dest"],
            each["guarantee"],
            each.get("forwarded_total", 0),
        )
        for each in found
    ]
    headings = ("ROUTER", "FROM", "TO", "GUARANTEE", "COPIED")
    tell_rows(
        found, as_json, headings, rows, "no routers yet: `millstream router add NAME FROM TO`"
    )


@command("millstream router info copy-orders")
@click.argument("name", metavar="ROUTER")
@over_http
@json_option
def info(name: str, access: ServerAccess, as_json: bool) -> None:
    """Show ROUTER."""
    told = ask(access, "GET", f"/v0/routers/{quote(name, safe='')}")
    pairs = [(field.replace("_", " "), value) for field, value in told.items()]
    tell(told, as_json, facts(f"Router {name}", pairs))


@command(
    "millstream router add copy-orders ORDERS archive",
    "millstream router add eu ORDERS orders-eu --tag 'eu*' --create-dest",
)
@click.argument("name", metavar="ROUTER")
@click.argument("source", metavar="FROM")
@click.argument("dest", metavar="TO")
@click.option("--tag", "tags", multiple=True, help="Only records with this tag; it may end in *.")
@click.option("--create-dest/--no-create-dest", default=None, help="Create a missing TO, or fail.")
@click.option("--guarantee", help="How carefully records are copied.")
@over_http
@json_option
def add(
    name: str,
    source: str,
    dest: str,
    tags: tuple[str, ...],
    create_dest: bool | None,
    guarantee: str | None,
    access: ServerAccess,
    as_json: bool,
) -> None:
    """Create or change ROUTER: what is written to topic FROM is copied to topic TO."""
    body: Json = {"source": source, "dest": dest}
    if create_dest is not None:
        body["create_dest"] = create_dest
    if tags:
        body["filter"] = list(tags)
    if guarantee:
        body["guarantee"] = guarantee
    told = ask(access, "PUT", f"/v0/routers/{quote(name, safe='')}?strict=true", body)
    done = "created" if told.get("created") else "changed"
    tell(told, as_json, f"{done} router {name}: {source} → {dest}")


@command("millstream router rm copy-orders --force")
@click.argument("name", metavar="ROUTER")
@force_option
@over_http
@json_option
def rm(name: str, force: bool, access: ServerAccess, as_json: bool) -> None:
    """Remove ROUTER; what it has copied stays."""
    path = f"/v0/routers/{quote(name, safe='')}"
    told = ask(access, "GET", path)
    sure(f"Remove router {name} ({told['source']} → {told['dest']})?", force)
    tell(ask(access, "DELETE", path), as_json, f"removed router {name}")
