"""Reload: what changes between two ``Options``, what of it can change now, and who is affected.

``plan`` only compares. ``carry_out`` hands what changed to the parts behind ``Reloadable``.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from millstream.server.options.options import LoggingOptions, Options, TlsOptions


class Aspect(Enum):
    """Which part of the server a setting is about."""

    LIMITS = "limits"
    LOG = "log"
    CREDENTIALS = "credentials"
    TLS = "tls"
    MAPPINGS = "mappings"
    ABOUT = "about"
    FILES = "files"
    LEAVING = "leaving"
    LINKS = "links"


_REBIND = "a listener keeps its address until the server is started again"
_STORE = "the store is opened once"
# Settings by path; a path stands for everything below it.
_ASPECTS: Mapping[str, Aspect] = {
    "limits": Aspect.LIMITS,
    "log": Aspect.LOG,
    "authorization": Aspect.CREDENTIALS,
    "accounts": Aspect.CREDENTIALS,
    "no_auth_user": Aspect.CREDENTIALS,
    "trust": Aspect.CREDENTIALS,
    "tls": Aspect.TLS,
    "mappings": Aspect.MAPPINGS,
    "advertise": Aspect.ABOUT,
    "tags": Aspect.ABOUT,
    "metadata": Aspect.ABOUT,
    "pid_file": Aspect.FILES,
    "ports_file_dir": Aspect.FILES,
    "http_port_file": Aspect.FILES,
    "lame_duck": Aspect.LEAVING,
    "leaf_authorization": Aspect.CREDENTIALS,
    "leafnodes": Aspect.LINKS,
    "cluster": Aspect.LINKS,
}
_FIXED: Mapping[str, str] = {
    "limits.max_pending": "connections keep the buffers that they were opened with",
    "limits.max_subject_tokens": "subscriptions that stand were checked with the old limit",
    "host": _REBIND,
    "port": _REBIND,
    "monitor": _REBIND,
    "monitor.allowed_hosts": "the HTTP door is told its names when it opens",
    "monitor.durability": "topics are told what they promise when the server starts",
    "websocket": _REBIND,
    **dict.fromkeys(("leafnodes.host", "leafnodes.port", "cluster.host", "cluster.port"), _REBIND),
    **dict.fromkeys(("leafnodes.tls", "cluster.tls"), _REBIND),
    "default_js_domains": "leafnodes were told at connect",
    "streams": "they are made at the start; `millstream apply` changes a running server",
    "proxy_protocol": _REBIND,
    "trusted_proxies": _REBIND,
    "jetstream": _STORE,
    "fleet": _STORE,
    "server_name": "clients and streams know the server by its name",
    "cluster_name": "clients know the cluster by its name",
    "headers": "clients were told at connect",
    "allow_non_tls": "clients were told at connect",
    "system_account": "it is set up at start",
    "no_system_account": "it is set up at start",
    "sublist_cache": "it is set up at start",
    "program": "files are named after it",
}


class ReloadRefusal(msgspec.Struct, frozen=True):
    """A setting that stays as it was, and why."""

    setting: str
    reason: str


class ReloadPlan(msgspec.Struct, frozen=True):
    """What a reload does.

    ``options`` are the old ones with everything that can change; ``dropped_users`` are known by
    name or nkey; ``recheck`` says that every client must show anew that it may be here.
    """

    options: Options
    applied: tuple[str, ...] = ()
    refused: tuple[ReloadRefusal, ...] = ()
    aspects: frozenset[Aspect] = frozenset()
    dropped_users: frozenset[str] = frozenset()
    recheck: bool = False


def plan(old: Options, new: Options) -> ReloadPlan:
    """Compare two options; certificates are read anew even when their names stay."""
    changed = list(_differences(old, new))
    refused = tuple(ReloadRefusal(path, reason) for path in changed if (reason := _fixed(path)))
    applied = tuple(path for path in changed if not _fixed(path))
    aspects = {_aspect(path) for path in applied}
    if new.tls is not None and old.tls is not None:
        aspects.add(Aspect.TLS)
    return ReloadPlan(
        _merged(old, new, applied),
        applied,
        refused,
        frozenset(aspects),
        dropped_users(old, new),
        Aspect.CREDENTIALS in aspects,
    )


def _differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Go through the paths that differ; whole values where one side is missing."""
    for field in old.__struct_fields__:
        before, after = getattr(old, field), getattr(new, field)
        name = f"{path}{field}"
        if before == after or name in _FILE:
            continue
        if name in _GROUPS and None not in (before, after):
            yield from _differences(before, after, f"{name}.")
        else:
            yield name


_GROUPS = ("limits", "log", "monitor", "lame_duck", "authorization", "leafnodes", "cluster")
_FILE = ("config_file", "config_digest")  # where settings came from is none of them


def _fixed(path: str) -> str:
    if path == "tls":
        return ""
    if path in ("leafnodes", "cluster"):
        return "links are set up at start, or not at all"
    return _FIXED.get(path) or _FIXED.get(path.partition(".")[0], "")


def _aspect(path: str) -> Aspect:
    return _ASPECTS[path.partition(".")[0]]


def _merged(old: Options, new: Options, applied: tuple[str, ...]) -> Options:
    merged = replace(old, config_file=new.config_file, config_digest=new.config_digest)
    for path in applied:
        group, _, field = path.partition(".")
        value = getattr(new, group)
        if field:
            changed: dict[str, Any] = {field: getattr(value, field)}
            value = replace(getattr(merged, group), **changed)
        top: dict[str, Any] = {group: value}
        merged = replace(merged, **top)
    return merged


def dropped_users(old: Options, new: Options) -> frozenset[str]:
    """Return who is gone or has another password, account or kind of connection."""
    before, after = _standing(old), _standing(new)
    return frozenset(name for name, standing in before.items() if after.get(name) != standing)


def _standing(options: Options) -> dict[str, tuple[object, ...]]:
    """Return what a user's connection rests on, by user; permissions can change under it."""
    known = options.authorization
    listed = [("", user) for user in known.users or ()]
    for account in options.accounts:
        listed += [(account.name, user) for user in account.users]
    standing: dict[str, tuple[object, ...]] = {
        user.id: (account, user.password, user.connection_types) for account, user in listed
    }
    if known.user:
        standing[known.user] = ("", known.password, ())
    return standing


class Reloadable(Protocol):
    """What the running parts offer; each call takes effect at once."""

    def set_limits(self, options: Options) -> None:
        """Hold clients to other limits."""

    def set_log(self, log: LoggingOptions) -> None:
        """Say other things, or say them elsewhere."""

    def set_credentials(self, options: Options) -> None:
        """Believe other users; close whoever would not be admitted as before."""

    def set_tls(self, tls: TlsOptions | None) -> None:
        """Use certificates as they are on disk now for new handshakes."""

    def set_mappings(self, options: Options) -> None:
        """Map subjects in another way."""

    def set_about(self, options: Options) -> None:
        """Tell clients another address, or monitoring other tags."""

    def set_files(self, options: Options) -> None:
        """Write the pid and ports files elsewhere."""

    def set_links(self, options: Options) -> None:
        """Call other servers than before."""

    def show(self, options: Options) -> None:
        """Have monitoring show what is in force now."""


def carry_out(planned: ReloadPlan, parts: Reloadable) -> None:
    """Hand everything that changed to the parts."""
    options, aspects = planned.options, planned.aspects
    if Aspect.LOG in aspects:
        parts.set_log(options.log)
    if Aspect.LIMITS in aspects:
        parts.set_limits(options)
    if Aspect.TLS in aspects:
        parts.set_tls(options.tls)
    if Aspect.CREDENTIALS in aspects:
        parts.set_credentials(options)
    if Aspect.MAPPINGS in aspects:
        parts.set_mappings(options)
    if Aspect.ABOUT in aspects:
        parts.set_about(options)
    if Aspect.FILES in aspects:
        parts.set_files(options)
    if Aspect.LINKS in aspects:
        parts.set_links(options)
    parts.show(options)
