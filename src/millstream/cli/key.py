"""``millstream key``: hand out API keys for the HTTP door, list them, take them back."""

import os
import secrets
from pathlib import Path

import click

from millstream.accounts.account import GLOBAL_ACCOUNT
from millstream.accounts.api_keys import ApiKey, BadKeys, make_key, parse_scopes
from millstream.server.access.key_file import KeyFile
from millstream.server.options.serve_config import ENVIRONMENT_PREFIX, ServeConfig

data_dir = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help=f"The server's directory.  [default: ./{ServeConfig().data_dir}]",
)


@click.group()
def key() -> None:
    """Hand out API keys for the HTTP door, list them, take them back.

    A running server notices within two seconds, and ends what a revoked key has open.
    """


@key.command()
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
@data_dir
def add(
    name: str | None, scopes: str, prefixes: tuple[str, ...], account: str, data_dir: Path | None
) -> None:
    """Create a key and print its secret. The secret is shown only now and kept nowhere."""
    name = name or secrets.token_hex(4)
    if not name.isprintable() or any(c.isspace() for c in name) or not all(prefixes):
        raise click.UsageError("a name is one word, and a prefix is not empty")
    try:
        made, secret = make_key(name, parse_scopes(scopes), prefixes, account)
    except BadKeys as error:
        raise click.UsageError(str(error)) from error
    with _file(data_dir).changed() as keys:
        if any(known.id == name for known in keys):
            raise click.UsageError(f"there is a key named {name!r}: revoke it first")
        keys.append(made)
    click.echo(f"{_row(made)}\nkept as a digest only; this is the secret:", err=True)
    click.echo(secret)


@key.command(name="list")
@data_dir
def list_(data_dir: Path | None) -> None:
    """Print the keys that count, without their secrets."""
    for known in _file(data_dir).read():
        click.echo(_row(known))


@key.command()
@click.argument("name")
@data_dir
def revoke(name: str, data_dir: Path | None) -> None:
    """Take a key back."""
    file = _file(data_dir)
    if not any(known.id == name for known in file.read()):
        raise click.UsageError(f"there is no key named {name!r}: see `millstream key list`")
    with file.changed() as keys:
        keys[:] = [known for known in keys if known.id != name]
    click.echo(f"revoked {name}", err=True)


def _file(data_dir: Path | None) -> KeyFile:
    given = data_dir or os.environ.get(f"{ENVIRONMENT_PREFIX}DATA_DIR")
    return KeyFile(Path(given) if given else ServeConfig().data_dir)


def _row(known: ApiKey) -> str:
    names = "|".join(known.prefixes) or "*"
    return f"{known.id}\t{'+'.join(sorted(known.scopes)) or '-'}\t{names}\t{known.account}"
