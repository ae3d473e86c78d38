"""A whole configuration file, parsed, turned into ``Options``."""

import ipaddress
import posixpath
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from millstream.server.conf.accounts import accounts
from millstream.server.conf.cluster import cluster
from millstream.server.conf.fleet import fleet
from millstream.server.conf.jetstream import jetstream
from millstream.server.conf.leafnodes import leafnodes
from millstream.server.conf.mappings import mappings
from millstream.server.conf.setting import (
    BadConfiguration,
    ConfFindings,
    Setting,
    Table,
    Values,
    ignored,
    read,
    unsupported,
)
from millstream.server.conf.streams import streams
from millstream.server.conf.syntax import ConfBlock, ConfError
from millstream.server.conf.tls import tls
from millstream.server.conf.trust import (
    operators,
    preload,
    resolver,
    system_account_of,
    trusted_keys,
)
from millstream.server.conf.users import authorization
from millstream.server.conf.websocket import websocket
from millstream.server.options.addresses import optional_port
from millstream.server.options.loaded import Places
from millstream.server.options.options import JetStreamOptions, Options
from millstream.server.options.serve_config import DURABILITIES, host_name
from millstream.server.options.syslog_url import problem_of

_SHORTEST_LAME_DUCK = 30.0


class FileOptions(msgspec.Struct, frozen=True):
    """The options of a file, with what is doubtful about it and what has no effect here."""

    options: Options
    warnings: tuple[ConfError, ...] = ()
    notes: tuple[ConfError, ...] = ()
    places: Places = {}  # of the settings at the top


def from_block(block: ConfBlock, file: str = "", base: Options | None = None) -> FileOptions:
    """Read a file over ``base`` (nats-server's defaults); raises with all that is wrong."""
    findings = ConfFindings()
    values = read(block, _TOP, findings)
    _check_whole(block, values, file, findings)
    if findings.problems:
        raise BadConfiguration(sorted(findings.problems, key=lambda p: (p.file, p.line)))
    options = _placed(values, base or Options())
    return FileOptions(
        replace(options, config_file=file),
        tuple(findings.warnings),
        tuple(findings.notes),
        {key.lower(): place for key, place in block.places.items()},
    )


def _check_whole(block: ConfBlock, values: Values, file: str, findings: ConfFindings) -> None:
    if not block:
        findings.warnings.append(ConfError("the file holds no settings", file, 1))
    stream = values.get("jetstream")
    if "store_dir" in values and isinstance(stream, JetStreamOptions) and stream.store_dir:
        place = block.places.get("store_dir") or block.places.get("storedir") or (file, 0)
        findings.problems.append(
            ConfError("'store_dir' stands here and in the jetstream block: keep one", *place)
        )


def _placed(values: Values, base: Options) -> Options:
    """Put values named ``group.field`` into their groups; zero means the default."""
    top: Values = {}
    groups: dict[str, Values] = {}
    for name, value in values.items():
        group, dot, inner = name.rpartition(".")
        if not dot:
            top[name] = value
        elif value != 0 or inner not in _ZERO_IS_DEFAULT:
            groups.setdefault(group, {})[inner] = value
    for group, changed in groups.items():
        top[group] = replace(getattr(base, group), **changed)
    store_dir = top.pop("store_dir", "")
    options = replace(base, **top)
    return _with_system_account(_with_store_dir(options, store_dir))


def _with_store_dir(options: Options, directory: str) -> Options:
    """Take a store_dir that stands outside of the jetstream block."""
    stream = options.jetstream
    if stream is None or not directory or stream.store_dir:
        return options
    return replace(options, jetstream=replace(stream, store_dir=directory))


def _with_system_account(options: Options) -> Options:
    found = options.trust.operators
    if options.system_account or len(found) != 1:
        return options
    return replace(options, system_account=system_account_of(found[0]))


# In these, nats-server takes a zero as "nothing said".
_ZERO_IS_DEFAULT = {
    "max_payload",
    "max_pending",
    "max_control_line",
    "max_closed_clients",
    "ping_interval",
    "ping_max",
    "write_deadline",
    "grace_period",
}


def _listen(setting: Setting) -> Values:
    host, port = setting.listen()
    return {**_port_of(port), **({"host": host} if host else {})}


def _port(setting: Setting) -> Values:
    return _port_of(setting.integer())


def _port_of(port: int) -> Values:
    return {"port": max(port, 0)} if port else {}


def _host(setting: Setting) -> Values:
    return {"host": setting.text()} if setting.text() else {}


def _monitor(setting: Setting) -> Values:
    host, port = setting.listen()
    field = "monitor.tls_port" if setting.key.lower() == "https" else "monitor.port"
    return {"monitor.host": host, field: optional_port(port)}


def _monitor_port(setting: Setting) -> int | None:
    return optional_port(setting.integer())


def base_path(text: str) -> str:
    """Return a path that starts with a slash and has no double ones."""
    return posixpath.normpath("/" + text.lstrip("/"))


def _durability(setting: Setting) -> str:
    if setting.text() not in DURABILITIES:
        raise setting.wrong(f"must be {', '.join(DURABILITIES)}")
    return setting.text()


def _hosts(setting: Setting) -> tuple[str, ...]:
    found = []
    for text in setting.texts():
        name = host_name(text)
        if name is None:
            raise setting.wrong(f"must name hosts, without scheme and port, not {text!r}")
        found.append(name)
    return tuple(found)


def _networks(setting: Setting) -> tuple[str, ...]:
    for text in setting.texts():
        try:
            ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise setting.wrong(f"must list addresses or networks, not {text!r}") from None
    return setting.texts()


def _remote_syslog(setting: Setting) -> str:
    wrong = problem_of(setting.text()) if setting.text() else ""
    if wrong:
        raise setting.wrong(f"cannot be {setting.text()!r}: {wrong}")
    return setting.text()


def _connections(setting: Setting) -> int:
    """Return how many may be connected; below 1 nobody."""
    return max(setting.integer(), 0)


def _subscriptions(setting: Setting) -> int:
    """Return how many a connection may hold; below 1 any number."""
    return max(setting.integer(), 0)


def _tokens(setting: Setting) -> int:
    number = setting.integer()
    if not 1 <= number <= 255:
        raise setting.wrong(f"must be 1 to 255, not {number}")
    return number


def _lame_duck(setting: Setting) -> float:
    seconds = setting.duration()
    if seconds < _SHORTEST_LAME_DUCK:
        raise setting.wrong(f"must be at least 30s, not {seconds:g}s")
    return seconds


def _grace_period(setting: Setting) -> float:
    seconds = setting.duration()
    if seconds < 0:
        raise setting.wrong("must not be negative")
    return seconds


def _write_timeout(setting: Setting) -> str:
    if setting.text() not in ("default", "close", "retry"):
        raise setting.wrong(f"must be default, close or retry, not {setting.value!r}")
    if setting.text() == "retry":
        raise setting.wrong("retry is not supported: a client that does not read is closed")
    return setting.text()


def _trace_headers(setting: Setting) -> Values:
    return {"log.trace_headers": setting.switch(), "log.trace": setting.switch()}


def _trace_verbose(setting: Setting) -> bool:
    if setting.switch():
        setting.note("is taken as 'trace': what the server tells itself is not traced")
    return setting.switch()


def _not(setting: Setting) -> bool:
    return not setting.switch()


def _refuse_if_on(why: str) -> Any:
    def check(setting: Setting) -> None:
        if setting.value is not False:
            raise setting.wrong(f"is not supported: {why}")

    return check


def _flags(setting: Setting) -> None:
    for inner in setting.inner():
        inner.switch()
    setting.note("has no effect: they switch parts of another server")


def _pairs(setting: Setting) -> tuple[tuple[str, str], ...]:
    return setting.text_pairs()


def _keys(names: tuple[str, ...], field: str, reader: Any) -> Mapping[str, tuple[str, Any]]:
    return dict.fromkeys(names, (field, reader))


_TOP: Table = {
    "listen": ("", _listen),
    "port": ("", _port),
    **_keys(("host", "net"), "", _host),
    "server_name": ("server_name", Setting.word),
    "client_advertise": ("advertise", Setting.text),
    "server_tags": ("tags", Setting.texts),
    "server_metadata": ("metadata", _pairs),
    "no_header_support": ("headers", _not),
    # limits
    **_keys(("max_connections", "max_conn"), "limits.max_connections", _connections),
    **_keys(("max_subscriptions", "max_subs"), "limits.max_subscriptions", _subscriptions),
    **_keys(("max_sub_tokens", "max_subscription_tokens"), "limits.max_subject_tokens", _tokens),
    "max_payload": ("limits.max_payload", Setting.small),
    "max_pending": ("limits.max_pending", Setting.integer),
    "max_control_line": ("limits.max_control_line", Setting.small),
    "max_closed_clients": ("limits.max_closed_clients", Setting.integer),
    "ping_interval": ("limits.ping_interval", Setting.duration_or_seconds),
    "ping_max": ("limits.ping_max", Setting.integer),
    "write_deadline": ("limits.write_deadline", Setting.duration_or_seconds),
    "write_timeout": ("", _write_timeout),
    "no_fast_producer_stall": ("limits.no_fast_producer_stall", Setting.switch),
    # monitoring
    **_keys(("http", "https"), "", _monitor),
    **_keys(("http_port", "monitor_port"), "monitor.port", _monitor_port),
    "https_port": ("monitor.tls_port", _monitor_port),
    "http_base_path": ("monitor.base_path", lambda setting: base_path(setting.text())),
    "allowed_hosts": ("monitor.allowed_hosts", _hosts),
    "http_durability": ("monitor.durability", _durability),
    # who may connect
    "authorization": ("authorization", authorization),
    "accounts": ("accounts", accounts),
    **_keys(("mappings", "maps"), "mappings", mappings),
    "no_auth_user": ("no_auth_user", Setting.text),
    **_keys(("system_account", "system"), "system_account", Setting.text),
    **_keys(("no_system_account", "no_system", "no_sys_acc"), "no_system_account", Setting.switch),
    **_keys(
        ("operator", "operators", "roots", "root", "root_operators", "root_operator"),
        "trust.operators",
        operators,
    ),
    **_keys(("trusted", "trusted_keys"), "trust.trusted_keys", trusted_keys),
    **_keys(("resolver", "account_resolver", "accounts_resolver"), "trust.resolver", resolver),
    "resolver_preload": ("trust.preload", preload),
    "resolver_pinned_accounts": ("trust.pinned_accounts", Setting.texts),
    "resolver_tls": ("", unsupported("account servers are asked with the system's authorities")),
    "default_sentinel": ("", unsupported("every client brings a JWT of its own")),
    # transports
    "tls": ("tls", tls),
    "allow_non_tls": ("allow_non_tls", Setting.switch),
    **_keys(("websocket", "ws"), "websocket", websocket),
    "ocsp": ("", _refuse_if_on("certificates are served without OCSP")),
    "ocsp_cache": ("", _refuse_if_on("certificates are checked without OCSP")),
    "proxy_protocol": ("proxy_protocol", Setting.switch),
    "proxy_protocol_trusted": ("trusted_proxies", _networks),
    "proxies": ("", unsupported("no client needs a proxy that signs for it")),
    # persistence
    "jetstream": ("jetstream", jetstream),
    "streams": ("streams", streams),
    "fleet": ("fleet", fleet),
    **_keys(("store_dir", "storedir"), "store_dir", Setting.text),
    "default_js_domain": ("default_js_domains", _pairs),
    # other servers
    "cluster": ("", cluster),
    **_keys(("leaf", "leafnodes"), "", leafnodes),
    "gateway": (
        "",
        unsupported("this server joins no super-cluster: connect the clusters by leafnodes"),
    ),
    "mqtt": ("", unsupported("MQTT clients cannot connect")),
    "connect_error_reports": ("", ignored(Setting.integer, "this server connects to no other")),
    "reconnect_error_reports": ("", ignored(Setting.integer, "this server connects to no other")),
    # process
    "debug": ("log.debug", Setting.switch),
    "trace": ("log.trace", Setting.switch),
    "trace_verbose": ("log.trace", _trace_verbose),
    "trace_headers": ("", _trace_headers),
    "logtime": ("log.time", Setting.switch),
    "logtime_utc": ("log.utc", Setting.switch),
    **_keys(("logfile", "log_file"), "log.file", Setting.text),
    **_keys(("logfile_size_limit", "log_size_limit"), "log.size_limit", Setting.integer),
    **_keys(("logfile_max_num", "log_max_num"), "log.max_files", Setting.integer),
    "max_traced_msg_len": ("log.max_traced_message", Setting.integer),
    "syslog": ("log.syslog", Setting.switch),
    "remote_syslog": ("log.remote_syslog", _remote_syslog),
    **_keys(("pidfile", "pid_file"), "pid_file", Setting.text),
    "ports_file_dir": ("ports_file_dir", Setting.text),
    "prof_port": ("", ignored(Setting.integer, "there is no Go program to profile")),
    "prof_block_rate": ("", ignored(Setting.integer, "there is no Go program to profile")),
    **_keys(("disable_sublist_cache", "no_sublist_cache"), "sublist_cache", _not),
    "lame_duck_duration": ("lame_duck.duration", _lame_duck),
    "lame_duck_grace_period": ("lame_duck.grace_period", _grace_period),
    "feature_flags": ("", _flags),
}
