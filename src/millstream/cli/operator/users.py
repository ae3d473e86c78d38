"""``user add``, ``ls``, ``rm`` and ``passwd``: users of a server of this machine."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from millstream.cli.access.options import force_option, json_option
from millstream.cli.command import command
from millstream.cli.operator.orders import PID_FILE
from millstream.cli.shown.near import hint
from millstream.cli.shown.output import sure, tell, tell_rows
from millstream.server.access.user_file import UserFile

Json = dict[str, Any]
COST = 8  # a check takes about 15 ms, during which the server does nothing else
CLOSES = (
    "This is the first user: from now on NATS and HTTP answer only to users and API keys. "
    "Programs that connect without credentials are refused when the server reloads."
)
data_dir = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    envvar="MILLSTREAM_DATA_DIR",
    default=Path("millstream-data"),
    show_default=True,
    help="The server's directory.",
)
password_stdin = click.option(
    "--password-stdin", is_flag=True, help="Read the password from standard input, without asking."
)


@command(
    "millstream user add ada",
    "millstream user add billing --subscribe 'orders.>' --password-stdin < secret",
)
@click.argument("name")
@click.option("--publish", multiple=True, help="Only these subjects; repeatable.  [default: all]")
@click.option("--subscribe", multiple=True, help="Only these subjects; repeatable.  [default: all]")
@click.option("--deny-publish", multiple=True, help="Not these subjects; repeatable.")
@click.option("--deny-subscribe", multiple=True, help="Not these subjects; repeatable.")
@password_stdin
@click.option(
    "-y", "--yes", is_flag=True, help="Do not ask before the first user closes the doors."
)
@data_dir
@json_option
def add(
    name: str,
    publish: tuple[str, ...],
    subscribe: tuple[str, ...],
    deny_publish: tuple[str, ...],
    deny_subscribe: tuple[str, ...],
    password_stdin: bool,
    yes: bool,
    data_dir: Path,
    as_json: bool,
) -> None:
    """Add the user NAME, for NATS and HTTP, with a password.

    The first user closes both doors to everybody else. The users are kept in users.conf in the
    data directory, passwords as bcrypt hashes; a running server takes them over at once.
    """
    if not name or not name.isprintable() or any(c.isspace() or c in '"\\' for c in name):
        raise click.UsageError("a user's name is one word")
    file = UserFile(data_dir)
    known = [each["user"] for each in file.read()]
    if name in known:
        raise click.UsageError(f"there is a user {name!r}: `millstream user passwd {name}`")
    if not known:
        click.echo(CLOSES, err=True)
        if not yes and sys.stdin.isatty():
            click.confirm("Add the user?", abort=True, err=True)
    made: Json = {"user": name, "password": _hashed(_password(password_stdin))}
    rights = {
        "publish": _rules(publish, deny_publish),
        "subscribe": _rules(subscribe, deny_subscribe),
    }
    if any(rights.values()):
        made["permissions"] = {side: rules for side, rules in rights.items() if rules}
    with file.changed() as users:
        users.append(made)
    tell(_shown(made), as_json, f"added user {name}")
    _reload(data_dir)


def _rules(allow: tuple[str, ...], deny: tuple[str, ...]) -> Json:
    rules = {"allow": list(allow), "deny": list(deny)}
    return {side: subjects for side, subjects in rules.items() if subjects}


def _password(from_stdin: bool) -> str:
    if from_stdin:
        given = sys.stdin.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        given = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        raise click.UsageError("nobody is here to ask for the password: pass --password-stdin")
    if not given:
        raise click.UsageError("a password has at least one character")
    if len(given.encode()) > 72:
        raise click.UsageError("a password has at most 72 bytes")
    return given


def _hashed(password: str) -> str:
    import bcrypt

    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(COST, prefix=b"2a")).decode()


def _shown(user: Json) -> Json:
    return {"user": user["user"], "permissions": user.get("permissions", {})}


@command("millstream user ls", "millstream user ls --json")
@data_dir
@json_option
def ls(data_dir: Path, as_json: bool) -> None:
    """List the users."""
    told = [_shown(each) for each in UserFile(data_dir).read()]
    rows = [
        (
            each["user"],
            _side(each["permissions"].get("publish")),
            _side(each["permissions"].get("subscribe")),
        )
        for each in told
    ]
    nothing = "no users: NATS asks nobody who they are. `millstream user add NAME` adds one"
    tell_rows(told, as_json, ("USER", "MAY PUBLISH", "MAY SUBSCRIBE"), rows, nothing)


def _side(rules: Json | None) -> str:
    if not rules:
        return "everything"
    allowed = ", ".join(rules.get("allow", ())) or "everything"
    return allowed + (f", not {', '.join(rules['deny'])}" if rules.get("deny") else "")


def _must_know(file: UserFile, name: str) -> None:
    known = [each["user"] for each in file.read()]
    if name not in known:
        also = hint(name, known) or ": see `millstream user ls`"
        raise click.UsageError(f"there is no user {name!r}{also}")


@command("millstream user rm ada --force")
@click.argument("name")
@force_option
@data_dir
@json_option
def rm(name: str, force: bool, data_dir: Path, as_json: bool) -> None:
    """Remove the user NAME; its connections end when the server reloads."""
    file = UserFile(data_dir)
    _must_know(file, name)
    last = len(file.read()) == 1
    opens = " It is the last one: then NATS asks nobody who they are." if last else ""
    sure(f"Remove user {name}?{opens}", force)
    with file.changed() as users:
        users[:] = [each for each in users if each["user"] != name]
    tell({"removed": name}, as_json, f"removed user {name}")
    _reload(data_dir)


@command(
    "millstream user passwd ada", "echo n3w-s3cret | millstream user passwd ada --password-stdin"
)
@click.argument("name")
@password_stdin
@data_dir
@json_option
def passwd(name: str, password_stdin: bool, data_dir: Path, as_json: bool) -> None:
    """Change the password of the user NAME."""
    file = UserFile(data_dir)
    _must_know(file, name)
    hashed = _hashed(_password(password_stdin))
    with file.changed() as users:
        for each in users:
            if each["user"] == name:
                each["password"] = hashed
    tell({"changed": name}, as_json, f"changed the password of {name}")
    _reload(data_dir)


def _reload(data_dir: Path) -> None:
    """Let a server that uses the directory take the users over; without one, nothing is due."""
    try:
        process = int((data_dir / PID_FILE).read_text())
        os.kill(process, signal.SIGHUP)
    except (OSError, ValueError):
        click.echo("no server uses this directory now: it counts from the next start on", err=True)
        return
    click.echo(f"told the server (process {process}) to take it over", err=True)
