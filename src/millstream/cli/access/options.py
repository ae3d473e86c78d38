"""Options that say which server a command talks to; the command gets them as one ``access``."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import click

from millstream.cli.access.server import ServerAccess
from millstream.cli.command import ServerOption

Function = Callable[..., Any]
Flag = tuple[tuple[str, ...], dict[str, Any]]

_CONTEXT: Flag = (
    ("--context", "context_name"),
    {"envvar": ["MILLSTREAM_CONTEXT"], "help": "A server by its name (see `context`)."},
)
_TIMEOUT: Flag = (
    ("--timeout",),
    {"type": click.FloatRange(min=0.001), "help": "Seconds to wait for an answer.  [default: 5]"},
)
_USER: Sequence[Flag] = (
    (("--user",), {"envvar": "NATS_USER", "help": "User."}),
    (("--password",), {"envvar": "NATS_PASSWORD", "help": "Password."}),
    (
        ("--tls-ca",),
        {
            "envvar": ["MILLSTREAM_TLS_CA", "NATS_CA"],
            "help": "PEM file of the authority that signed the server's certificate.",
        },
    ),
)
_NATS: Sequence[Flag] = (
    (
        ("-s", "--url", "--server", "url"),
        {
            "envvar": "NATS_URL",
            "help": "NATS, as nats://[user:password@]host:port.  [default: this machine, 4222]",
        },
    ),
    (("--creds",), {"envvar": "NATS_CREDS", "help": "Credentials file."}),
    (("--nkey",), {"envvar": "NATS_NKEY", "help": "File with the seed of an nkey."}),
    (("--tls-cert",), {"envvar": "NATS_CERT", "help": "PEM file of the client's certificate."}),
    (("--tls-key",), {"envvar": "NATS_KEY", "help": "PEM file of the certificate's key."}),
)
_HTTP: Sequence[Flag] = (
    (
        ("--http-url",),
        {
            "envvar": "MILLSTREAM_HTTP_URL",
            "help": "HTTP, as http://host:port.  [default: port 8222 of the machine of --url]",
        },
    ),
    (("--token",), {"envvar": "MILLSTREAM_TOKEN", "help": "API key for HTTP."}),
)
_HIDDEN_URL: Flag = (("-s", "--url", "--server", "url"), {"envvar": "NATS_URL", "hidden": True})


def connected(function: Function) -> Function:
    """Add the options of a command that speaks NATS."""
    return _with(function, (*_NATS, *_USER, _CONTEXT, _TIMEOUT))


def connected_for_long(function: Function) -> Function:
    """Add the options of a command that speaks NATS and has a time limit of its own."""
    return _with(function, (*_NATS, *_USER, _CONTEXT))


def over_http(function: Function) -> Function:
    """Add the options of a command that speaks HTTP."""
    return _with(function, (*_HTTP, *_USER, _CONTEXT, _TIMEOUT, _HIDDEN_URL))


def over_both(function: Function) -> Function:
    """Add the options of a command that speaks both."""
    return _with(function, (*_NATS, *_HTTP, *_USER, _CONTEXT, _TIMEOUT))


def _with(function: Function, flags: Sequence[Flag]) -> Function:
    names = [next(n for n in reversed(words)).lstrip("-").replace("-", "_") for words, _ in flags]

    @functools.wraps(function)
    def run(*arguments: Any, **values: Any) -> Any:
        given = {name: values.pop(name) for name in names}
        from millstream.cli.access.contexts import Contexts  # not for a help text

        context = Contexts().find(given.pop("context_name"))
        return function(*arguments, access=ServerAccess(given, context), **values)

    return _connection(flags)(run)


def _connection(flags: Sequence[Flag]) -> Callable[[Function], Function]:
    def add(function: Function) -> Function:
        for words, settings in reversed(flags):
            function = click.option(*words, cls=ServerOption, **settings)(function)
        return function

    return add


def json_option(function: Function) -> Function:
    """Add ``--json``: one JSON object per line."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")(
        function
    )


def force_option(function: Function) -> Function:
    """Add ``--force``: do not ask."""
    return click.option("-f", "--force", is_flag=True, help="Do not ask first.")(function)
