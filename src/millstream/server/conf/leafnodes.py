"""The ``leafnodes`` block: where leafs find us, and the hubs that we call."""

import re
from typing import TYPE_CHECKING

from millstream.links.terms import DialTls, LeafRemote, LeafTerms, ServerAddress
from millstream.server.conf.cluster import LEAF_PORT, addresses, listen, port
from millstream.server.conf.setting import Setting, Table, Values, ignored, read, unsupported
from millstream.server.conf.syntax import ConfError
from millstream.server.conf.tls import link_tls
from millstream.server.options.auth_options import LeafAuthorization, UserOptions

if TYPE_CHECKING:
    from millstream.server.options.options import TlsOptions

_PLAIN = "links are not compressed here, and say so to the other server"
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(-.*)?")


def leafnodes(setting: Setting) -> Values:
    """Read the block; without a port and remotes nothing listens or calls."""
    values = read(setting.block(), _LEAFNODES, setting.findings)
    known: LeafAuthorization | None = values.pop("authorization", None)
    encrypted: tuple[TlsOptions, DialTls] | None = values.pop("tls", None)
    if encrypted is not None:
        values["tls"] = encrypted[0]
    if not values.get("host", "x"):
        del values["host"]
    if known is not None and known.timeout:
        values["auth_timeout"] = known.timeout
    terms = LeafTerms(**values)
    is_used = terms.port is not None or bool(terms.remotes)
    return {"leafnodes": terms if is_used else None, "leaf_authorization": known}


def _remotes(setting: Setting) -> tuple[LeafRemote, ...]:
    made = []
    for element in setting.elements():
        try:
            made.append(_remote(element))
        except ConfError as error:
            setting.findings.problems.append(error)
    return tuple(remote for remote in made if remote is not None)


def _remote(setting: Setting) -> LeafRemote | None:
    known = len(setting.findings.problems)
    values = read(setting.block(), _REMOTE, setting.findings)
    if len(setting.findings.problems) > known:
        return None
    if not values.get("urls"):
        raise setting.wrong("has an entry without a url: add one")
    if values.get("credentials") and values.get("nkey"):
        raise setting.wrong("has an entry with both credentials and an nkey: keep one")
    encrypted: tuple[TlsOptions, DialTls] | None = values.pop("tls", None)
    if encrypted is not None:
        values["tls"] = encrypted[1]
    return LeafRemote(**values)


def _urls(setting: Setting) -> tuple[ServerAddress, ...]:
    return addresses(setting, LEAF_PORT)


def _authorization(setting: Setting) -> LeafAuthorization:
    values = read(setting.block(), _AUTHORIZATION, setting.findings)
    made = LeafAuthorization(**values)
    if made.users and (made.user or made.nkey):
        raise setting.wrong("has both a single user and a users array: keep one")
    return made


def _users(setting: Setting) -> tuple[tuple[UserOptions, str], ...]:
    made = []
    for element in setting.elements():
        values = read(element.block(), _USER, setting.findings)
        account = values.pop("account", "")
        made.append((UserOptions(**values), account))
    return tuple(made)


def _version(setting: Setting) -> tuple[int, int, int]:
    found = _VERSION.fullmatch(setting.text())
    if found is None:
        raise setting.wrong(f"must be a version like 2.8.0, not {setting.value!r}")
    least = (int(found[1]), int(found[2]), int(found[3]))
    if least < (2, 8, 0):
        raise setting.wrong("must be at least 2.8.0")
    return least


def _proxy_required(setting: Setting) -> None:
    if setting.switch():
        raise setting.wrong("is not supported: there are no trusted proxies")


_NAME = dict.fromkeys(("user", "username"), ("name", Setting.text))
_PASSWORD = dict.fromkeys(("pass", "password"), ("password", Setting.text))
_USER: Table = {
    **_NAME,
    **_PASSWORD,
    "account": ("account", Setting.text),
    "proxy_required": ("", _proxy_required),
}
_AUTHORIZATION: Table = {
    **dict.fromkeys(("user", "username"), ("user", Setting.text)),
    **_PASSWORD,
    "nkey": ("nkey", Setting.text),
    "timeout": ("timeout", Setting.timeout),
    "users": ("users", _users),
    "account": ("account", Setting.text),
    "proxy_required": ("", _proxy_required),
}
_REMOTE: Table = {
    **dict.fromkeys(("no_randomize", "dont_randomize"), ("no_randomize", Setting.switch)),
    **dict.fromkeys(("url", "urls"), ("urls", _urls)),
    **dict.fromkeys(("account", "local"), ("account", Setting.text)),
    **dict.fromkeys(("creds", "credentials"), ("credentials", Setting.text)),
    **dict.fromkeys(("nkey", "seed"), ("nkey", Setting.text)),
    "tls": ("tls", link_tls),
    "hub": ("hub", Setting.switch),
    **dict.fromkeys(("deny_imports", "deny_import"), ("deny_imports", Setting.texts)),
    **dict.fromkeys(("deny_exports", "deny_export"), ("deny_exports", Setting.texts)),
    **dict.fromkeys(
        ("ws_compress", "ws_compression", "websocket_compress", "websocket_compression"),
        ("", ignored(Setting.switch, "remotes are not called over WebSocket")),
    ),
    **dict.fromkeys(
        ("ws_no_masking", "websocket_no_masking"),
        ("", ignored(Setting.switch, "remotes are not called over WebSocket")),
    ),
    **dict.fromkeys(
        ("jetstream_cluster_migrate", "js_cluster_migrate"),
        ("", ignored(lambda setting: setting.value, "streams have no leader that could move")),
    ),
    **dict.fromkeys(("isolate_leafnode_interest", "isolate"), ("isolate", Setting.switch)),
    "request_isolation": ("isolate", Setting.switch),
    "compression": ("", ignored(lambda setting: setting.value, _PLAIN)),
    "first_info_timeout": ("first_wait", Setting.duration_or_seconds),
    "dial_timeout": ("", ignored(Setting.duration_or_seconds, "set it for all remotes")),
    "disabled": ("disabled", Setting.switch),
    "proxy": ("", unsupported("remotes are called directly")),
    "ignore_discovered_servers": ("ignores_discovered", Setting.switch),
}
_LEAFNODES: Table = {
    "listen": ("", listen),
    "port": ("", port),
    **dict.fromkeys(("host", "net"), ("host", Setting.text)),
    "authorization": ("authorization", _authorization),
    "remotes": ("remotes", _remotes),
    **dict.fromkeys(
        ("reconnect", "reconnect_delay", "reconnect_interval"),
        ("reconnect", Setting.duration_or_seconds),
    ),
    "dial_timeout": ("dial_timeout", Setting.duration_or_seconds),
    "tls": ("tls", link_tls),
    **dict.fromkeys(("leafnode_advertise", "advertise"), ("advertise", Setting.text)),
    "no_advertise": ("no_advertise", Setting.switch),
    **dict.fromkeys(("min_version", "minimum_version"), ("min_version", _version)),
    "compression": ("", ignored(lambda setting: setting.value, _PLAIN)),
    **dict.fromkeys(("isolate_leafnode_interest", "isolate"), ("isolate", Setting.switch)),
    "write_deadline": (
        "",
        ignored(Setting.duration_or_seconds, "a link keeps the clients' write_deadline"),
    ),
    "write_timeout": ("", ignored(Setting.text, "a link that takes nothing in time is closed")),
}
