"""The ``cluster`` block: where members find us, and whom we call."""

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from millstream.accounts.permissions import Rule
from millstream.links.terms import DialTls, RouteTerms, ServerAddress
from millstream.server.conf.permissions import subject_rules
from millstream.server.conf.setting import Setting, Table, Values, ignored, read
from millstream.server.conf.tls import link_tls
from millstream.server.conf.users import simple_authorization

if TYPE_CHECKING:
    from millstream.server.options.options import TlsOptions

ROUTE_PORT = 6222
LEAF_PORT = 7422
_ONE_ROUTE = "there is one route to each member, which carries all accounts"
_PLAIN = "links are not compressed here, and say so to the other server"


def cluster(setting: Setting) -> Values:
    """Read the block; with a name alone, clients see the name and nothing listens or calls."""
    values = read(setting.block(), _CLUSTER, setting.findings)
    name = values.get("name", "")
    made = route_terms(values)
    return {"cluster_name": name, "cluster": made if made.port is not None or made.routes else None}


def route_terms(values: Values) -> RouteTerms:
    """Return what the block's values come to."""
    values = dict(values)
    known = values.pop("authorization", None)
    if known is not None:
        values |= {"user": known.user, "password": known.password}
        values |= {"auth_timeout": known.timeout} if known.timeout else {}
    encrypted: tuple[TlsOptions, DialTls] | None = values.pop("tls", None)
    if encrypted is not None:
        values |= {"tls": encrypted[0], "dial_tls": encrypted[1]}
    if not values.get("host", "x"):
        del values["host"]
    terms = RouteTerms(**values)
    own = [url if url.user else replace(url, user=terms.user, password=terms.password)
           for url in terms.routes]  # fmt: skip
    return replace(terms, routes=tuple(own))


def addresses(setting: Setting, port: int) -> tuple[ServerAddress, ...]:
    """Read one URL or several."""
    return tuple(address(text, port, setting) for text in setting.texts())


def address(text: str, port: int, setting: Setting) -> ServerAddress:
    """Read a URL: nats, tls or nats-route and the like, a bare host and port, or ws and wss."""
    written = text if "://" in text else f"nats://{text}"
    try:
        parts = urlsplit(written)
        found = parts.port or port
    except ValueError:
        raise setting.wrong(f"names no address: {text!r}") from None
    if not parts.hostname:
        raise setting.wrong(f"names no host: {text!r}")
    if parts.scheme in ("ws", "wss"):
        raise setting.wrong("is not supported over WebSocket: name the leafnode port, nats://…")
    if found < 0:
        raise setting.wrong(f"names no port: {text!r}")
    return ServerAddress(
        parts.hostname,
        found,
        unquote(parts.username or ""),
        unquote(parts.password or ""),
        parts.password is not None,
        parts.scheme in ("tls", "nats+tls"),
    )


def listen(setting: Setting) -> Values:
    """Read ``listen``: a port, or host and port."""
    host, port = setting.listen()
    return {"port": _port(port), **({"host": host} if host else {})}


def port(setting: Setting) -> Values:
    """Read ``port``; -1 picks a free one, 0 does not listen."""
    return {"port": _port(setting.integer())}


def _port(number: int) -> int | None:
    return None if number == 0 else max(number, 0)


def _routes(setting: Setting) -> tuple[ServerAddress, ...]:
    return addresses(setting, ROUTE_PORT)


def _permissions(setting: Setting) -> Values:
    """Read ``import`` and ``export``, which nats-server writes as publish and subscribe too."""
    found = {}
    for inner in setting.inner():
        side = {"import": "imports", "publish": "imports", "export": "exports",
                "subscribe": "exports"}.get(inner.key.lower())  # fmt: skip
        if side is None:
            inner.report("is not a known setting: import and export are")
        else:
            found[side] = _rule(inner)
    return found


def _rule(setting: Setting) -> Rule:
    rules = subject_rules(setting)
    return Rule() if rules is None else Rule.of(rules.allow, rules.deny, queues=False)


def _seconds(setting: Setting) -> float:
    return setting.duration_or_seconds()


_CLUSTER: Table = {
    "name": ("name", Setting.word),
    "listen": ("", listen),
    "port": ("", port),
    **dict.fromkeys(("host", "net"), ("host", Setting.text)),
    "authorization": ("authorization", simple_authorization),
    "routes": ("routes", _routes),
    "tls": ("tls", link_tls),
    **dict.fromkeys(("cluster_advertise", "advertise"), ("advertise", Setting.text)),
    "no_advertise": ("no_advertise", Setting.switch),
    "connect_retries": ("connect_retries", Setting.integer),
    "connect_backoff": ("connect_backoff", Setting.switch),
    "permissions": ("", _permissions),
    "pool_size": ("", ignored(Setting.integer, _ONE_ROUTE)),
    "accounts": ("", ignored(Setting.texts, _ONE_ROUTE)),
    "compression": ("", ignored(lambda setting: setting.value, _PLAIN)),
    "ping_interval": ("ping_interval", _seconds),
    "ping_max": ("ping_max", Setting.integer),
    "write_deadline": ("", ignored(_seconds, "a link keeps the clients' write_deadline")),
    "write_timeout": ("", ignored(Setting.text, "a link that takes nothing in time is closed")),
}
