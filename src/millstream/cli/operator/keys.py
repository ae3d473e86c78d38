"""``key add``, ``list``, ``revoke`` and ``disable``: API keys for the HTTP door."""

import os
import secrets
import sys
from pathlib import Path

import click

from millstream.accounts.account import GLOBAL_ACCOUNT
from millstream.accounts.api_keys import ApiKey, BadKeys, make_key, parse_scopes
from millstream.cli.access.options import force_option, json_option
from millstream.cli.command import command
from millstream.cli.shown.output import as_text, sure, tell
from millstream.server.access.key_file import KeyFile
from millstream.server.options.serve_config import ENVIRONMENT_PREFIX, ServeConfig

data_dir = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help=f"The server's directory.  [default: ./{ServeConfig().data_dir}]",
)
CLOSES = (
    "This is the first key: from now on HTTP (API, dashboard, metrics, monitoring) answers only "
    "to who has a key or a user's password. /healthz and /v0/health stay open. NATS stays as it "
    "is: `millstream user add` closes both."
)


@command(
    "millstream key add --name ci --scopes read+write --prefix ci.",
    "millstream key add --yes",
)
@click.option("--name", help="Name of the key.  [default: a random word]")
@click.option(
    "--scopes", default="", help="Scopes: read+write+delete+admin, or some of them.  [default: all]"
)
@click.option(
    "--prefix",
    "prefixes",
    multiple=True,
    help="Only topics whose names begin with this; repeatable.",
)
@click.option("--account", default=GLOBAL_ACCOUNT, show_default=True, help="Account of the topics.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before the first key closes HTTP.")
@data_dir
@json_option
def add(
    name: str | None,
    scopes: str,
    prefixes: tuple[str, ...],
    account: str,
    yes: bool,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Create a key and print its secret. The secret is shown only now and kept nowhere.

    The first key closes HTTP to everybody without one; `millstream key disable` opens it again.
    """
    name = name or secrets.token_hex(4)
    if not name.isprintable() or any(c.isspace() for c in name) or not all(prefixes):
        raise click.UsageError("a name is one word, and a prefix is not empty")
    try:
        made, secret = make_key(name, parse_scopes(scopes), prefixes, account)
    except BadKeys as error:
        raise click.UsageError(str(error)) from error
    file = _file(data_dir)
    if not file.read():
        _ask_before_the_first(yes)
    with file.changed() as keys:
        if any(known.id == name for known in keys):
            raise click.UsageError(f"there is a key named {name!r}: revoke it first")
        keys.append(made)
    click.echo(f"{_row(made)}\nkept as a digest only; this is the secret:", err=True)
    click.echo(as_text({**_fields(made), "secret": secret}) if as_json else secret)
    click.echo(f"use it: export MILLSTREAM_TOKEN={'*' * 8}, or Authorization: Bearer …", err=True)


def _ask_before_the_first(yes: bool) -> None:
    """Say what closes; a terminal is asked, a script was meant."""
    click.echo(CLOSES, err=True)
    if not yes and sys.stdin.isatty():
        click.confirm("Create it?", abort=True, err=True)


@command("millstream key list", "millstream key list --json")
@data_dir
@json_option
def list_(data_dir: Path | None, as_json: bool) -> None:
    """Print the keys that count, without their secrets."""
    for known in _file(data_dir).read():
        click.echo(as_text(_fields(known)) if as_json else _row(known))


@command("millstream key revoke ci")
@click.argument("name")
@data_dir
@json_option
def revoke(name: str, data_dir: Path | None, as_json: bool) -> None:
    """Take a key back. A running server notices within two seconds, and ends what it has open."""
    file = _file(data_dir)
    known = [each.id for each in file.read()]
    if name not in known:
        from millstream.cli.shown.near import hint

        also = hint(name, known) or ": see `millstream key list`"
        raise click.UsageError(f"there is no key named {name!r}{also}")
    with file.changed() as keys:
        keys[:] = [each for each in keys if each.id != name]
    if as_json:
        click.echo(as_text({"revoked": name}))
    click.echo(f"revoked {name}", err=True)
    if known == [name]:
        click.echo("it was the last: HTTP answers to users alone. `key disable` opens it", err=True)


@command("millstream key disable --force")
@data_dir
@force_option
@json_option
def disable(data_dir: Path | None, force: bool, as_json: bool) -> None:
    """Take all keys back and let HTTP answer everybody again, as before the first key."""
    file = _file(data_dir)
    known = file.read()
    if not file.exists():
        raise click.ClickException(f"there are no keys in {file.path.parent}: HTTP is open")
    sure(f"Revoke {len(known)} keys and open HTTP to everybody who reaches it?", force)
    file.remove()
    text = f"revoked {len(known)} keys; HTTP is open again within two seconds"
    tell({"revoked": [each.id for each in known]}, as_json, text)


def _file(data_dir: Path | None) -> KeyFile:
    given = data_dir or os.environ.get(f"{ENVIRONMENT_PREFIX}DATA_DIR")
    return KeyFile(Path(given) if given else ServeConfig().data_dir)


def _fields(known: ApiKey) -> dict[str, object]:
    return {
        "name": known.id,
        "scopes": sorted(known.scopes),
        "prefixes": list(known.prefixes),
        "account": known.account,
    }


def _row(known: ApiKey) -> str:
    names = "|".join(known.prefixes) or "*"
    return f"{known.id}\t{'+'.join(sorted(known.scopes)) or '-'}\t{names}\t{known.account}"
