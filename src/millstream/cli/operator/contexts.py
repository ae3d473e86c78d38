"""``context add``, ``ls``, ``info``, ``select`` and ``rm``."""

from typing import Any

import click

from millstream.cli.access.contexts import FIELDS, Contexts, shown
from millstream.cli.access.options import force_option, json_option
from millstream.cli.command import command
from millstream.cli.shown.output import sure, tell, tell_rows
from millstream.cli.shown.table import facts


def _fields(function: Any) -> Any:
    texts = {
        "url": "NATS, as nats://host:port.",
        "user": "User.",
        "password": "Password.",
        "creds": "Credentials file.",
        "nkey": "File with the seed of an nkey.",
        "tls_ca": "PEM file of the authority.",
        "tls_cert": "PEM file of the client's certificate.",
        "tls_key": "PEM file of its key.",
        "http_url": "HTTP, as http://host:port.",
        "token": "API key for HTTP.",
        "description": "What the server is for.",
    }
    for name in reversed(FIELDS):
        flags = ["--" + name.replace("_", "-")]
        if name == "url":
            flags = ["-s", "--url", "--server", "url"]
        function = click.option(*flags, help=texts[name])(function)
    return function


@command(
    "millstream context add prod --url nats://broker:4222 --creds prod.creds",
    "millstream context add local --url nats://127.0.0.1:4222 --select",
)
@click.argument("name")
@_fields
@click.option("--select", "selects", is_flag=True, help="Use it from now on.")
@json_option
def add(name: str, selects: bool, as_json: bool, **values: str | None) -> None:
    """Save a server under NAME; what you give again replaces what was there."""
    if not name.isprintable() or any(c.isspace() for c in name):
        raise click.UsageError("a context's name is one word")
    contexts = Contexts()
    selected, known = contexts.read()
    given = {field: value for field, value in values.items() if value is not None}
    known[name] = {**known.get(name, {}), **given}
    contexts.write(name if selects or not known.keys() - {name} else selected, known)
    tell({"context": name, **shown(known[name])}, as_json, f"saved context {name}")


@command("millstream context ls", "millstream context ls --json")
@json_option
def ls(as_json: bool) -> None:
    """List the contexts; * marks the one in use."""
    selected, known = Contexts().read()
    told = [
        {"context": name, "selected": name == selected, **shown(fields)}
        for name, fields in sorted(known.items())
    ]
    rows = [
        (
            f"{'*' if each['selected'] else ' '} {each['context']}",
            each.get("url", ""),
            each.get("http_url", ""),
            each.get("description", ""),
        )
        for each in told
    ]
    nothing = "no contexts yet: `millstream context add NAME --url nats://host:port`"
    tell_rows(told, as_json, ("NAME", "NATS", "HTTP", "DESCRIPTION"), rows, nothing)


@command("millstream context info prod")
@click.argument("name", required=False)
@json_option
def info(name: str | None, as_json: bool) -> None:
    """Show the context NAME, or the one in use, without its secrets."""
    contexts = Contexts()
    wanted = name or contexts.read()[0]
    if wanted is None:
        raise click.ClickException("no context is selected: `millstream context select NAME`")
    fields = shown(contexts.find(wanted))
    tell({"context": wanted, **fields}, as_json, facts(f"Context {wanted}", fields.items()))


@command("millstream context select prod", "millstream context select --none")
@click.argument("name", required=False)
@click.option("--none", "nothing", is_flag=True, help="Use no context any more.")
@json_option
def select(name: str | None, nothing: bool, as_json: bool) -> None:
    """Use the context NAME from now on."""
    if (name is None) is not nothing:
        raise click.UsageError("give a NAME, or --none")
    contexts = Contexts()
    if name is not None:
        contexts.find(name)
    contexts.write(name, contexts.read()[1])
    tell({"selected": name}, as_json, f"using {name}" if name else "using no context")


@command("millstream context rm prod --force")
@click.argument("name")
@force_option
@json_option
def rm(name: str, force: bool, as_json: bool) -> None:
    """Forget the context NAME."""
    contexts = Contexts()
    contexts.find(name)
    sure(f"Forget context {name}?", force)
    selected, known = contexts.read()
    del known[name]
    contexts.write(None if selected == name else selected, known)
    tell({"removed": name}, as_json, f"forgot context {name}")
