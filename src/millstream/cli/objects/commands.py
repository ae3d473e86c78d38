"""``object ls``, ``info``, ``add``, ``rm``, ``seal`` and ``watch``."""

import json
import sys
from itertools import islice
from typing import Any

import click

from millstream.cli.access.options import connected, force_option, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.objects.object_store import PREFIX, ObjectStore
from millstream.cli.shown import figures
from millstream.cli.shown.figures import DURATION, SIZE
from millstream.cli.shown.output import as_text, sure, tell, tell_rows
from millstream.cli.shown.table import facts
from millstream.client.jetstream.inbox import new_inbox

Json = dict[str, Any]


@command("millstream object ls", "millstream object ls FILES")
@click.argument("store", required=False)
@connected
@json_option
def ls(store: str | None, access: ServerAccess, as_json: bool) -> None:
    """List the stores, or the objects of STORE."""
    with access.jetstream() as js:
        if store is None:
            stores = [each for each in js.streams() if each["config"]["name"].startswith(PREFIX)]
            rows = [shown(each) for each in stores]
            cells = [
                (each["store"], figures.size(each["bytes"]), each["storage"], each["sealed"])
                for each in rows
            ]
            nothing = "no object stores yet: `millstream object add FILES` creates one"
            tell_rows(rows, as_json, ("STORE", "SIZE", "STORAGE", "SEALED"), cells, nothing)
            return
        known = ObjectStore(js, store)
        known.info()
        found = list(known.objects())
    lines = [
        (each["name"], figures.size(each["size"]), figures.moment(each["mtime"])) for each in found
    ]
    tell_rows(found, as_json, ("NAME", "SIZE", "STORED"), lines, f"{store} has no objects")


def shown(stream: Json) -> Json:
    """Return a store as JSON tells it."""
    config, state = stream["config"], stream["state"]
    return {
        "store": config["name"][4:],
        "bytes": state["bytes"],
        "storage": config["storage"],
        "sealed": bool(config.get("sealed")),
        "ttl_ns": config.get("max_age", 0),
        "description": config.get("description", ""),
    }


@command("millstream object info FILES", "millstream object info FILES logo.png --json")
@click.argument("store")
@click.argument("name", required=False)
@connected
@json_option
def info(store: str, name: str | None, access: ServerAccess, as_json: bool) -> None:
    """Show STORE, or the object NAME in it."""
    with access.jetstream() as js:
        known = ObjectStore(js, store)
        told = shown(known.info()) if name is None else known.must_find(name)
    title = f"Store {store}" if name is None else f"Object {name} of {store}"
    pairs = [(field.replace("_", " "), value) for field, value in told.items()]
    pairs = [
        (field, figures.size(value) if field in ("bytes", "size") else value)
        for field, value in pairs
        if not isinstance(value, dict)
    ]
    tell(told, as_json, facts(title, pairs))


@command("millstream object add FILES", "millstream object add UPLOADS --ttl 7d --max-bytes 10GB")
@click.argument("store")
@click.option("--ttl", type=DURATION, help="How long objects last.")
@click.option("--max-bytes", type=SIZE, help="Most bytes.")
@click.option("--storage", type=click.Choice(["file", "memory"]), default="file", help="Where.")
@click.option("--description", default="", help="What the store is for.")
@click.option("--replicas", type=click.IntRange(min=1), default=1, help="Copies in a cluster.")
@connected
@json_option
def add(
    store: str,
    ttl: int | None,
    max_bytes: int | None,
    storage: str,
    description: str,
    replicas: int,
    access: ServerAccess,
    as_json: bool,
) -> None:
    """Create STORE."""
    config = {
        "name": f"{PREFIX}{store}",
        "subjects": [f"$O.{store}.C.>", f"$O.{store}.M.>"],
        "max_age": ttl or 0,
        "max_bytes": max_bytes or -1,
        "storage": storage,
        "description": description,
        "num_replicas": replicas,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "allow_direct": True,
    }
    with access.jetstream() as js:
        made = js.ask(f"STREAM.CREATE.{ObjectStore(js, store).stream}", config)
    tell(shown(made), as_json, f"created object store {store}")


@command("millstream object rm FILES logo.png", "millstream object rm FILES --force")
@click.argument("store")
@click.argument("name", required=False)
@force_option
@connected
@json_option
def rm(store: str, name: str | None, force: bool, access: ServerAccess, as_json: bool) -> None:
    """Remove the object NAME of STORE; without NAME, STORE with everything in it."""
    with access.jetstream() as js:
        known = ObjectStore(js, store)
        if name is not None:
            about = known.must_find(name)
            sure(f"Remove {name} ({figures.size(about['size'])}) of {store}?", force)
            known.remove(about)
        else:
            held = figures.size(known.info()["state"]["bytes"])
            sure(f"Remove object store {store} with its {held}?", force)
            js.ask(f"STREAM.DELETE.{known.stream}")
    tell({"store": store, "name": name, "removed": True}, as_json, f"removed {name or store}")


@command("millstream object seal FILES --force")
@click.argument("store")
@force_option
@connected
@json_option
def seal(store: str, force: bool, access: ServerAccess, as_json: bool) -> None:
    """Let nothing change STORE any more, for good."""
    with access.jetstream() as js:
        known = ObjectStore(js, store)
        config = known.info()["config"]
        sure(f"Seal {store}? It cannot be opened again.", force)
        made = js.ask(f"STREAM.UPDATE.{known.stream}", {**config, "sealed": True})
    tell(shown(made), as_json, f"sealed {store}")


@command("millstream object watch FILES")
@click.argument("store")
@click.option("--count", type=click.IntRange(min=1), help="Stop after this many changes.")
@connected
@json_option
def watch(store: str, count: int | None, access: ServerAccess, as_json: bool) -> None:
    """Print the objects of STORE, then every change as it happens."""
    with access.jetstream() as js:
        known = ObjectStore(js, store)
        known.info()
        inbox = new_inbox()
        incoming = js.client.subscribe(inbox)
        config = {
            "deliver_subject": inbox,
            "ack_policy": "none",
            "mem_storage": True,
            "filter_subject": f"$O.{store}.M.>",
            "deliver_policy": "last_per_subject",
            "inactive_threshold": 60_000_000_000,
            "idle_heartbeat": 5_000_000_000,
        }
        js.ask(f"CONSUMER.CREATE.{known.stream}", {"stream_name": known.stream, "config": config})
        for message in islice((each for each in incoming if each.status is None), count):
            about = json.loads(message.payload)
            done = "removed" if about.get("deleted") else f"stored {figures.size(about['size'])}"
            click.echo(as_text(about) if as_json else f"{about['name']}  {done}")
            sys.stdout.flush()
