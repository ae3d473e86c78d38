"""``kv add``, ``edit`` and ``rm``."""

from typing import Any

import click

from millstream.cli.access.options import connected, force_option, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.buckets.bucket import Bucket
from millstream.cli.buckets.listing import shown
from millstream.cli.command import command
from millstream.cli.shown.figures import DURATION, SIZE
from millstream.cli.shown.output import sure, tell

Json = dict[str, Any]
_SETTINGS = (
    click.option("--history", type=click.IntRange(1, 64), help="Values to keep of each key."),
    click.option("--ttl", type=DURATION, help="How long a value lasts, such as 1h."),
    click.option("--max-value-size", type=SIZE, help="Largest value."),
    click.option("--max-bucket-size", type=SIZE, help="Most bytes."),
    click.option("--description", help="What the bucket is for."),
    click.option("--replicas", type=click.IntRange(min=1), help="Copies in a cluster."),
)


def _settings(function: Any) -> Any:
    for option in reversed(_SETTINGS):
        function = option(function)
    return function


def _wish(values: Json) -> Json:
    names = {
        "history": "max_msgs_per_subject",
        "ttl": "max_age",
        "description": "description",
        "max_value_size": "max_msg_size",
        "max_bucket_size": "max_bytes",
        "replicas": "num_replicas",
    }
    return {names[name]: value for name, value in values.items() if value is not None}


@command("millstream kv add CONFIG", "millstream kv add SESSIONS --ttl 30m --history 5")
@click.argument("bucket")
@_settings
@click.option("--storage", type=click.Choice(["file", "memory"]), default="file", help="Where.")
@connected
@json_option
def add(bucket: str, storage: str, access: ServerAccess, as_json: bool, **values: Any) -> None:
    """Create BUCKET."""
    wish = _wish(values)
    window = min(wish.get("max_age") or 120_000_000_000, 120_000_000_000)
    config = {
        "max_msgs_per_subject": 1,
        "max_consumers": -1,
        "max_msgs": -1,
        "max_bytes": -1,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
        "discard": "new",
        "retention": "limits",
        "max_msg_size": -1,
        "num_replicas": 1,
        **wish,
        "storage": storage,
        "duplicate_window": window,
        "name": f"KV_{bucket}",
        "subjects": [f"$KV.{bucket}.>"],
    }
    with access.jetstream() as js:
        made = js.ask(f"STREAM.CREATE.{Bucket(js, bucket).stream}", config)
    tell(shown(made), as_json, f"created bucket {bucket}")


@command("millstream kv edit CONFIG --history 10")
@click.argument("bucket")
@_settings
@connected
@json_option
def edit(bucket: str, access: ServerAccess, as_json: bool, **values: Any) -> None:
    """Change the settings of BUCKET: what you do not name stays as it is."""
    with access.jetstream() as js:
        known = Bucket(js, bucket)
        config = {**known.info()["config"], **_wish(values)}
        made = js.ask(f"STREAM.UPDATE.{known.stream}", config)
    tell(shown(made), as_json, f"changed bucket {bucket}")


@command("millstream kv rm CONFIG", "millstream kv rm CONFIG --force")
@click.argument("bucket")
@force_option
@connected
@json_option
def rm(bucket: str, force: bool, access: ServerAccess, as_json: bool) -> None:
    """Remove BUCKET with everything in it."""
    with access.jetstream() as js:
        known = Bucket(js, bucket)
        held = known.info()["state"]["messages"]
        sure(f"Remove bucket {bucket} with its {held:,} values?", force)
        answer = js.ask(f"STREAM.DELETE.{known.stream}")
    tell(answer, as_json, f"removed bucket {bucket} ({held:,} values)")
