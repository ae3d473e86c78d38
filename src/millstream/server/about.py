"""What is told of the options in force: to clients by INFO, to monitoring and to ``$SYS``."""

from functools import lru_cache
from typing import Any

from millstream.monitor.facts import Facts
from millstream.nats.system.server_card import ServerCard
from millstream.server.options.options import Options, WebsocketOptions
from millstream.wire.times import rfc3339


def show(facts: Facts, options: Options, now_ns: int) -> None:
    """Have monitoring show these options, which are in force from now on."""
    limits, tls = options.limits, options.tls
    facts.configured_ns = now_ns
    facts.config_digest = options.config_digest
    facts.auth_required = options.credentials
    facts.auth_timeout = options.auth_timeout
    facts.tls_required = tls is not None and not options.allow_non_tls
    facts.tls_verify = tls is not None and tls.verify
    facts.tls_timeout = tls.timeout if tls is not None else facts.tls_timeout
    facts.certificate = tls.certificates[0].cert_file if tls else ""
    facts.tags = options.tags
    facts.metadata = dict(options.metadata)
    facts.max_payload = limits.max_payload
    facts.max_connections = limits.max_connections
    facts.max_subscriptions = limits.max_subscriptions
    facts.max_control_line = limits.max_control_line
    facts.max_pending = limits.max_pending
    facts.ping_interval = limits.ping_interval
    facts.ping_max = limits.ping_max
    facts.write_deadline = limits.write_deadline


@lru_cache(maxsize=4)
def end_of_certificate(cert_file: str, loaded_ns: int) -> str:
    """Return when a certificate expires, read once for each time that it was loaded."""
    from millstream.nats.transport.certificate import end_of  # costs more than a start may take

    try:
        return rfc3339(end_of(cert_file))
    except (OSError, ValueError):  # gone or spoilt since
        return ""


def label(card: ServerCard, options: Options) -> None:
    """Have what the system account hears carry the server's tags and metadata."""
    card.tags = list(options.tags)
    card.metadata = dict(options.metadata)


def advertised(options: Options, bound: tuple[str, int]) -> tuple[str, int]:
    """Return the address that clients are told: where the server listens, unless it says so."""
    host, colon, port = options.advertise.rpartition(":")
    if not options.advertise:
        return bound
    if colon and port.isdecimal():
        return host.strip("[]"), int(port)
    return options.advertise.strip("[]"), bound[1]


def websocket_shown(terms: WebsocketOptions, bound: tuple[str, int]) -> dict[str, Any]:
    """Return what monitoring shows of the WebSocket port."""
    ends = (
        end_of_certificate(terms.tls.certificates[0].cert_file, 0) if terms.tls is not None else ""
    )
    shown = {"host": bound[0], "port": bound[1]}
    optional = {
        "advertise": terms.advertise,
        "no_auth_user": terms.no_auth_user,
        "jwt_cookie": terms.jwt_cookie,
        "handshake_timeout": round(terms.handshake_timeout * 1e9),
        "no_tls": terms.no_tls,
        "tls_cert_not_after": ends,
        "same_origin": terms.same_origin,
        "allowed_origins": [*terms.allowed_origins],
        "compression": terms.compression,
    }
    return shown | {name: value for name, value in optional.items() if value}
