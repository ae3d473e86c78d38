"""What ``millstream serve`` was told: its defaults < a configuration file < environment < flags."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from millstream.server.access.key_file import KeyFile
from millstream.server.access.user_file import UserFile
from millstream.server.options.addresses import is_loopback
from millstream.server.options.config_error import ConfigError
from millstream.server.options.loaded import Loaded
from millstream.server.options.options import Options
from millstream.server.options.options_check import refuse_contradictions
from millstream.server.options.serve_config import CAPS, ServeConfig

T = TypeVar("T")

# Where each setting of ``serve`` stands in the options.
_PATHS = {
    "host": "host",
    "port": "port",
    "http_host": "monitor.host",
    "http_port": "monitor.port",
    "data_dir": "jetstream.store_dir",
    "server_name": "server_name",
    "max_payload": "limits.max_payload",
    "ports_file_dir": "ports_file_dir",
    "pid_file": "pid_file",
    "http_port_file": "http_port_file",
    "api_keys": "monitor.keys",
    "probe_auth": "monitor.probe_auth",
    "allowed_hosts": "monitor.allowed_hosts",
    "http_durability": "monitor.durability",
    "mask_file": "monitor.mask_rules",
    "log_format": "log.form",
    "segment_max_events": "jetstream.segments",
    "segment_max_bytes": "jetstream.segments",
    "segment_max_age_ms": "jetstream.segments",
    "wal_shards": "jetstream.wal_shards",
    "cold": "jetstream.cold.place",
    "fleet": "fleet",
    "hot_segments": "jetstream.cold.hot_segments",
    "hot_bytes": "jetstream.cold.hot_bytes",
    **dict.fromkeys(CAPS, "monitor.caps"),
}


def load_serve(
    values: Mapping[str, Any], file: str = "", environment: Mapping[str, str] | None = None
) -> Loaded:
    """Return what to serve; ``values`` are those of ``ServeConfig`` that were given."""
    typed = ServeConfig(**values)
    base = ServeConfig().options()
    read = _read(file, environment or {}, base)
    options = _overlaid(_with_our_own(read.options, base), typed.options(), values)
    options = _with_users(options, file, environment or {})
    refuse_contradictions(options, file, read.places)
    refuse_if_open(options, allowed=typed.allow_insecure_no_auth)
    return Loaded(options, (*read.warnings, *_in_plain_text(options)), read.notes)


def _with_users(options: Options, file: str, environment: Mapping[str, str]) -> Options:
    """Add the users that ``millstream user`` keeps in the data directory."""
    if options.jetstream is None or not UserFile(options.jetstream.directory).path.exists():
        return options
    managed = UserFile(options.jetstream.directory)
    managed.read()  # refuses what somebody else wrote
    if options.credentials:
        raise ConfigError(
            f"{file or 'the configuration'} and {managed.path} both name users: keep one. "
            "`millstream user` changes the second"
        )
    return _read(str(managed.path), environment, options).options


def _read(file: str, environment: Mapping[str, str], base: Options) -> Loaded:
    """Return what a file says over ``base``; without a file, ``base`` as it is."""
    if not file:
        return Loaded(base)
    # Imported here: a start without a file does not pay for what reads one.
    from millstream.server.command_line.options_file import read_file

    read = read_file(file, environment, base)
    warnings, notes = tuple(map(str, read.warnings)), tuple(map(str, read.notes))
    return Loaded(read.options, warnings, notes, read.places)


def _with_our_own(options: Options, base: Options) -> Options:
    """Keep our directory where a file names none, and one HTTP port where it wants HTTPS."""
    stream, usual, monitor = options.jetstream, base.jetstream, options.monitor
    if stream is not None and usual is not None and not stream.store_dir:
        options = replace(options, jetstream=replace(stream, store_dir=usual.store_dir))
    if monitor.tls_port is not None and monitor.port == base.monitor.port:
        options = replace(options, monitor=replace(monitor, port=None))
    return options


def _overlaid(options: Options, typed: Options, values: Mapping[str, Any]) -> Options:
    for name in values:
        if name in _PATHS:
            options = _with(options, typed, _PATHS[name])
    limits = options.limits
    if "max_payload" in values and limits.max_payload > limits.max_pending:
        options = replace(options, limits=replace(limits, max_pending=limits.max_payload))
    return options


def _with(holder: T, typed: Any, path: str) -> T:
    """Return options with one setting as it was typed."""
    field, _, rest = path.partition(".")
    value = getattr(typed, field)
    if rest and getattr(holder, field) is None:
        return holder  # what it belongs to is off
    changed: Any = _with(getattr(holder, field), value, rest) if rest else value
    return cast("T", replace(cast("Any", holder), **{field: changed}))


def refuse_if_open(options: Options, *, allowed: bool) -> None:
    """Raise when other machines could reach a door where nobody is asked who they are."""
    if allowed:
        return
    doors = [] if options.credentials else [options.host]
    if options.monitor.listens and not _guards_http(options):
        doors.append(options.monitor_host)
    for host in doors:
        if not is_loopback(host):
            raise ConfigError(
                f"refusing to listen on {host} without credentials: anyone could read and write. "
                "Listen on 127.0.0.1, or pass --allow-insecure-no-auth on a network you trust"
            )


def _in_plain_text(options: Options) -> Iterator[str]:
    """Say where keys and passwords could be read on their way."""
    monitor, host = options.monitor, options.monitor_host
    if monitor.port is not None and not is_loopback(host) and _guards_http(options):
        yield f"keys and passwords go to {host} in plain text: use https_port with a tls block"


def _guards_http(options: Options) -> bool:
    """Whether HTTP clients must say who they are: as a user, or by a key."""
    stored = options.jetstream is not None and KeyFile(options.jetstream.directory).exists()
    return options.credentials or bool(options.monitor.keys) or stored
