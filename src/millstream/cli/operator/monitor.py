"""The monitoring pages that every NATS server serves over HTTP."""

from typing import Any
from urllib.parse import urlencode

import click

from millstream.cli.access.server import ServerAccess

Json = dict[str, Any]


def page(access: ServerAccess, path: str, **query: Any) -> Json:
    """Return what a monitoring page says."""
    from millstream.client.topic_calls import Call

    where = f"{path}?{urlencode(query)}" if query else path
    link = access.link()
    try:
        told: Json = link.call(Call("GET", where, dict[str, Any]))
    finally:
        link.close()
    return told


def health(access: ServerAccess) -> tuple[int, Json]:
    """Return the status and the words of ``/healthz``, also where they are bad."""
    import http.client
    import json

    from millstream.client.errors import ConnectFailed

    place = access.place()
    where, limit = (place.host, place.port), place.timeout
    connection = (
        http.client.HTTPSConnection(*where, timeout=limit, context=place.tls)
        if place.secure
        else http.client.HTTPConnection(*where, timeout=limit)
    )
    try:
        connection.request("GET", "/healthz", headers=place.headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"{}")
    except OSError as error:
        raise place.unreachable(error) from error
    except ValueError as error:
        raise ConnectFailed(f"{place.url} does not answer like a server: {error}") from error
    finally:
        connection.close()


def must(told: object, what: str) -> Any:
    """Return what was found, or say that it was not."""
    if told is None:
        raise click.ClickException(what)
    return told
