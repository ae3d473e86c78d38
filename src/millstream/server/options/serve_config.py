"""What ``millstream serve`` was asked to do: defaults < environment < flags, checked once."""

import ipaddress
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from millstream.accounts.api_keys import ApiKey, BadKeys, parse_keys
from millstream.dashboard.masking import BadRules, MaskRule, read_rules
from millstream.server.options import fleet_url
from millstream.server.options.config_error import ConfigError
from millstream.server.options.options import (
    MOST_SHARDS,
    ColdHistoryOptions,
    FleetOptions,
    HttpCaps,
    JetStreamOptions,
    LimitOptions,
    LoggingOptions,
    MonitorOptions,
    Options,
    SegmentOptions,
)

ENVIRONMENT_PREFIX = "MILLSTREAM_"
ALIAS_PREFIX = "TOPICS_"
DEFAULT_CAPS = HttpCaps()
CAPS = HttpCaps.__struct_fields__
# The HTTP door's settings go by these names too, for whoever comes from there.
ALIASES = {
    "http_host": "HOST",
    "http_port": "PORT",
    "http_port_file": "PORT_FILE",
    "cold": "COLD_DIR",
    "hot_segments": "HOT_RETAIN_SEGMENTS",
    "hot_bytes": "HOT_RETAIN_BYTES",
    **{
        name: name.upper()
        for name in (
            *("data_dir", "api_keys", "probe_auth", "allow_insecure_no_auth"),
            *("segment_max_events", "segment_max_bytes", "segment_max_age_ms", "wal_shards"),
            *CAPS,
        )
    },
}
# By those names, only of these is it refused what cannot be read: the others keep their default.
TEXTS = ("http_host", "http_port_file", "data_dir", "api_keys", "cold")
COLD_ALIAS = ALIAS_PREFIX + ALIASES["cold"]
HOT_SEGMENTS = 4  # that stay where a cold directory was named in that way alone
MAX_PAYLOAD_LIMIT = 64 * 1024 * 1024
LOG_FORMATS = ("text", "json")
MAX_PENDING = 8 * 1024 * 1024
REPEATED = {"allowed_hosts": "--allowed-host"}  # flags that are given once for each
_HOST_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_HOST_AND_PORT = re.compile(r"\[?([^\[\]:]*|(?<=\[)[^\[\]]+)\]?:(\d+)")
DURABILITIES = ("fsync", "disk", "memory", "ephemeral")
TRUE = {"1", "true", "yes", "on"}
FALSE = {"", "0", "false", "no", "off"}

Given: TypeAlias = str | int | bool | Path | tuple[str, ...] | None

log = logging.getLogger(__name__)


class ServeConfig(msgspec.Struct, frozen=True):
    """How to serve. Port 0 means: take a free one and say which.

    ``ports_file_dir`` and ``pid_file`` are where launchers look for the ports and the process,
    ``http_port_file`` where they look for the HTTP door's address alone.
    """

    host: str = "127.0.0.1"
    port: int = 4222
    http_host: str = "127.0.0.1"
    http_port: int = 8222
    data_dir: Path = Path("millstream-data")
    server_name: str | None = None
    max_payload: int = 1024 * 1024
    ports_file_dir: Path | None = None
    pid_file: Path | None = None
    http_port_file: Path | None = None
    segment_max_events: int = 1 << 20
    segment_max_bytes: int = 64 << 20
    segment_max_age_ms: int = 3_600_000
    allow_insecure_no_auth: bool = False
    api_keys: tuple[ApiKey, ...] = ()  # from the environment alone: flags are seen by everyone
    probe_auth: bool = False
    wal_shards: int = 1
    cold: str | None = None
    fleet: str | None = None
    hot_segments: int | None = None
    hot_bytes: int | None = None
    max_topics: int = DEFAULT_CAPS.max_topics
    max_routers: int = DEFAULT_CAPS.max_routers
    max_watch_sessions: int = DEFAULT_CAPS.max_watch_sessions
    max_sse_connections: int = DEFAULT_CAPS.max_sse_connections
    max_sse_connections_per_key: int = DEFAULT_CAPS.max_sse_connections_per_key
    max_inflight_per_key: int = DEFAULT_CAPS.max_inflight_per_key
    max_total_bytes: int = DEFAULT_CAPS.max_total_bytes
    max_body_bytes: int = DEFAULT_CAPS.max_body_bytes
    max_unread_bytes: int = DEFAULT_CAPS.max_unread_bytes
    max_unread_bytes_per_key: int = DEFAULT_CAPS.max_unread_bytes_per_key
    max_unread_bytes_per_connection: int = DEFAULT_CAPS.max_unread_bytes_per_connection
    test_min_heartbeat_ms: int = DEFAULT_CAPS.test_min_heartbeat_ms
    allowed_hosts: tuple[str, ...] = ()
    http_durability: str = "disk"
    mask_file: tuple[MaskRule, ...] = ()
    log_format: str = "text"

    def options(self) -> Options:
        """Return the same as ``Options``, with the defaults of ``serve``."""
        return Options(
            host=self.host,
            port=self.port,
            server_name=self.server_name or "",
            monitor=MonitorOptions(
                self.http_host,
                self.http_port,
                topics=True,
                keys=self.api_keys,
                probe_auth=self.probe_auth,
                caps=HttpCaps(**{name: getattr(self, name) for name in CAPS}),
                allowed_hosts=self.allowed_hosts,
                durability=self.http_durability,
                mask_rules=self.mask_file,
            ),
            limits=LimitOptions(
                max_payload=self.max_payload, max_pending=max(MAX_PENDING, self.max_payload)
            ),
            jetstream=JetStreamOptions(
                store_dir=str(self.data_dir),
                segments=SegmentOptions(
                    self.segment_max_events,
                    self.segment_max_bytes,
                    self.segment_max_age_ms / 1000 or float("inf"),
                ),
                wal_shards=self.wal_shards,
                cold=ColdHistoryOptions(self.cold or "", self.hot_segments, self.hot_bytes),
            ),
            fleet=FleetOptions(self.fleet) if self.fleet else None,
            log=LoggingOptions(form=self.log_format),
            pid_file=str(self.pid_file or ""),
            ports_file_dir=str(self.ports_file_dir or ""),
            http_port_file=str(self.http_port_file or ""),
            program="millstream",
        )


def given(flags: Mapping[str, Given], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that were given, checked; a flag that is None was not."""
    values: dict[str, Any] = {}
    environ = _with_host_and_port_apart(environ)
    for name in ServeConfig.__struct_fields__:
        variable = ENVIRONMENT_PREFIX + name.upper()
        value, source = flags.get(name), REPEATED.get(name) or "--" + name.replace("_", "-")
        if name in ALIASES and variable not in environ:
            variable = ALIAS_PREFIX + ALIASES[name]
        if value is None and variable in environ:
            value, source = environ[variable], variable
            if variable.startswith(ALIAS_PREFIX) and name not in TEXTS:
                value = _forgiven(name, environ[variable], source)
        if value is not None:
            values[name] = _READERS[name](value, source)
    if "cold" in values and values["cold"] == environ.get(COLD_ALIAS):
        values.setdefault("hot_segments", HOT_SEGMENTS)
    return values


def _forgiven(name: str, value: str, source: str) -> Given:
    """Return what a variable of the other names says; None where it says nothing."""
    if name == "segment_max_events" and value == "0":
        return 1
    if name == "hot_bytes" and value == "0":
        return None  # no bound, where ours would keep nothing
    try:
        _READERS[name](value, source)
    except ConfigError as error:
        log.warning("%s: the default holds", error)
        return None
    return value


def _with_host_and_port_apart(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Take ``TOPICS_HOST`` apart where it names the port too, which counts then."""
    whole = _HOST_AND_PORT.fullmatch(environ.get(ALIAS_PREFIX + "HOST", ""))
    if whole is None:
        return environ
    return {**environ, ALIAS_PREFIX + "HOST": whole[1], ALIAS_PREFIX + "PORT": whole[2]}


def host_name(text: str) -> str | None:
    """Return a name or address that can stand in a Host header, without its port, else None."""
    if _HOST_NAME.fullmatch(text):
        return text.lower()
    try:
        return str(ipaddress.ip_address(text.removeprefix("[").removesuffix("]")))
    except ValueError:
        return None


def _text(given: Given, source: str) -> str:
    text = str(given)
    if not text or any(c.isspace() for c in text):
        raise ConfigError(f"{source} must be one word, not {text!r}")
    return text


def _path(given: Given, source: str) -> Path:
    if not str(given):
        raise ConfigError(f"{source} must name a path")
    return Path(str(given))


def _integer(given: Given, source: str) -> int:
    try:
        return int(str(given))
    except ValueError:
        raise ConfigError(f"{source} must be a whole number, not {given!r}") from None


def _positive(given: Given, source: str) -> int:
    number = _integer(given, source)
    if not 1 <= number < 2**31:
        raise ConfigError(f"{source} must be 1 to {2**31 - 1}, not {number}")
    return number


def _age(given: Given, source: str) -> int:
    number = _integer(given, source)
    if not 0 <= number < 2**63:
        raise ConfigError(f"{source} must be 0 for never, or milliseconds, not {number}")
    return number


def _shards(given: Given, source: str) -> int:
    number = _integer(given, source)
    if not 1 <= number <= MOST_SHARDS:
        raise ConfigError(f"{source} must be 1 to {MOST_SHARDS}, not {number}")
    return number


def _cap(given: Given, source: str) -> int:
    number = _integer(given, source)
    if not 0 <= number < 2**63:
        raise ConfigError(f"{source} must be 0 for no cap, or a cap, not {number}")
    return number


def _body(given: Given, source: str) -> int:
    number = _integer(given, source)
    if not 1 <= number <= DEFAULT_CAPS.max_body_bytes:
        raise ConfigError(f"{source} must be 1 to {DEFAULT_CAPS.max_body_bytes}, not {number}")
    return number


def _heartbeat(given: Given, source: str) -> int:
    return min(max(_integer(given, source), 1), DEFAULT_CAPS.test_min_heartbeat_ms)


def _port(given: Given, source: str) -> int:
    port = _integer(given, source)
    if not -1 <= port <= 65535:
        raise ConfigError(f"{source} must be a port up to 65535, or 0 for a free one, not {port}")
    return max(port, 0)


def _payload(given: Given, source: str) -> int:
    size = _integer(given, source)
    if not 1 <= size <= MAX_PAYLOAD_LIMIT:
        raise ConfigError(f"{source} must be 1 to {MAX_PAYLOAD_LIMIT} bytes, not {size}")
    return size


def _switch(given: Given, source: str) -> bool:
    text = str(given).lower()
    if text not in TRUE | FALSE:
        raise ConfigError(f"{source} must be true or false, not {given!r}")
    return text in TRUE


def _hosts(given: Given, source: str) -> tuple[str, ...]:
    listed = given if isinstance(given, tuple) else str(given).split(",")
    found = []
    for text in filter(None, map(str.strip, listed)):
        name = host_name(text)
        if name is None:
            raise ConfigError(f"{source} must name a host, without scheme and port, not {text!r}")
        found.append(name)
    return tuple(found)


def _durability(given: Given, source: str) -> str:
    if given not in DURABILITIES:
        raise ConfigError(f"{source} must be {', '.join(DURABILITIES)}, not {given!r}")
    return str(given)


def _keys(given: Given, source: str) -> tuple[ApiKey, ...]:
    try:
        return parse_keys(str(given))
    except BadKeys as error:
        raise ConfigError(f"{source}: {error}") from None


def _log_format(given: Given, source: str) -> str:
    if given not in LOG_FORMATS:
        raise ConfigError(f"{source} must be {' or '.join(LOG_FORMATS)}, not {given!r}")
    return str(given)


def _fleet(given: Given, source: str) -> str:
    text = _text(given, source)
    if wrong := fleet_url.problem_of(text):
        raise ConfigError(f"{source} {wrong}, not {text!r}")
    return text


def _mask(given: Given, source: str) -> tuple[MaskRule, ...]:
    try:
        return read_rules(_path(given, source))
    except BadRules as error:
        raise ConfigError(f"{source}: {error}") from None


_READERS: dict[str, Callable[[Given, str], Any]] = {
    "host": _text,
    "port": _port,
    "http_host": _text,
    "http_port": _port,
    "data_dir": _path,
    "server_name": _text,
    "max_payload": _payload,
    "ports_file_dir": _path,
    "pid_file": _path,
    "http_port_file": _path,
    "segment_max_events": _positive,
    "segment_max_bytes": _positive,
    "segment_max_age_ms": _age,
    "allow_insecure_no_auth": _switch,
    "api_keys": _keys,
    "probe_auth": _switch,
    **dict.fromkeys(CAPS, _cap),
    "max_body_bytes": _body,
    "test_min_heartbeat_ms": _heartbeat,
    "wal_shards": _shards,
    "cold": _text,
    "fleet": _fleet,
    "hot_segments": _cap,
    "hot_bytes": _cap,
    "allowed_hosts": _hosts,
    "http_durability": _durability,
    "mask_file": _mask,
    "log_format": _log_format,
}
