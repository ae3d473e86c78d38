"""A command line laid over ``Options``: what was typed wins over what a file says."""

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from millstream.links.terms import RouteTerms, ServerAddress
from millstream.server.command_line.flags import BadFlag, Flags
from millstream.server.options.addresses import optional_port
from millstream.server.options.auth_options import Authorization
from millstream.server.options.options import (
    CertificatePair,
    JetStreamOptions,
    Options,
    TlsOptions,
)
from millstream.server.options.syslog_url import problem_of
from millstream.server.options.tls_files import BadTlsFile, check_authority, check_pair


def with_flags(options: Options, flags: Flags) -> Options:
    """Return the options with the command line's say; raises ``BadFlag``."""
    _refuse(flags)
    for step in _STEPS:
        options = step(options, flags)
    return options


def _refuse(flags: Flags) -> None:
    remote = flags.text("remote_syslog")
    if remote and (wrong := problem_of(remote)):
        raise BadFlag(f"--remote_syslog cannot be {remote!r}: {wrong}")


def _addresses(options: Options, flags: Flags) -> Options:
    if "port" in flags.given:
        port = flags.number("port")
        options = replace(options, port=max(port, 0) if port else Options().port)
    if flags.text("host"):
        options = replace(options, host=flags.text("host"))
    monitor = options.monitor
    if "http_port" in flags.given:
        monitor = replace(monitor, port=optional_port(flags.number("http_port")))
    if "https_port" in flags.given:
        monitor = replace(monitor, tls_port=optional_port(flags.number("https_port")))
    return replace(options, monitor=monitor)


def _names(options: Options, flags: Flags) -> Options:
    if " " in flags.text("server_name"):
        raise BadFlag("the server name cannot contain spaces")
    return replace(
        options,
        server_name=flags.text("server_name") or options.server_name,
        advertise=flags.text("client_advertise") or options.advertise,
        cluster_name=flags.text("cluster_name") or options.cluster_name,
        pid_file=flags.text("pid") or options.pid_file,
        ports_file_dir=flags.text("ports_file_dir") or options.ports_file_dir,
    )


def _log(options: Options, flags: Flags) -> Options:
    log, given = options.log, flags.given
    for name, fields in (
        ("debug", ("debug",)),
        ("trace", ("trace",)),
        ("debug_trace", ("debug", "trace")),
        ("trace_verbose", ("trace", "trace_verbose")),
        ("debug_trace_verbose", ("debug", "trace", "trace_verbose")),
        ("logtime", ("time",)),
        ("logtime_utc", ("utc",)),
        ("syslog", ("syslog",)),
    ):
        if name in given:
            changed: dict[str, Any] = dict.fromkeys(fields, flags.on(name))
            log = replace(log, **changed)
    return replace(
        options,
        log=replace(
            log,
            file=flags.text("log") or log.file,
            remote_syslog=flags.text("remote_syslog") or log.remote_syslog,
            size_limit=flags.number("log_size_limit") or log.size_limit,
            max_traced_message=flags.number("max_traced_msg_len") or log.max_traced_message,
        ),
    )


def _cluster(options: Options, flags: Flags) -> Options:
    """Take --cluster, --routes and what tunes them."""
    terms = options.cluster or RouteTerms(name=options.cluster_name)
    if flags.text("cluster"):
        place = _place(flags.text("cluster"), "--cluster")
        terms = replace(
            terms, host=place.host, port=place.port, user=place.user or terms.user,
            password=place.password or terms.password,
        )  # fmt: skip
    if flags.text("routes"):
        named = [text.strip() for text in flags.text("routes").split(",") if text.strip()]
        terms = replace(terms, routes=tuple(_place(text, "--routes") for text in named))
    if terms.port is None and not terms.routes:
        return options
    terms = replace(
        terms,
        name=options.cluster_name,
        advertise=flags.text("cluster_advertise") or terms.advertise,
        no_advertise=flags.on("no_advertise") or terms.no_advertise,
        connect_retries=flags.number("connect_retries") or terms.connect_retries,
    )
    return replace(options, cluster=terms)


def _place(text: str, flag: str) -> ServerAddress:
    parts = urlsplit(text if "://" in text else f"nats://{text}")
    try:
        found = parts.port
    except ValueError:
        found = -1 if text.endswith(":-1") else None
    if not parts.hostname or found is None:
        raise BadFlag(f"{flag} needs a URL like nats://host:6222, not {text!r}")
    return ServerAddress(
        parts.hostname, max(found, 0), unquote(parts.username or ""),
        unquote(parts.password or ""), parts.password is not None,
    )  # fmt: skip


def _credentials(options: Options, flags: Flags) -> Options:
    user, password, token = flags.text("user"), flags.text("pass"), flags.text("auth")
    if token and (user or password):
        raise BadFlag("--auth and --user exclude each other: keep one")
    known = options.authorization
    if token:
        single = Authorization(token=token, timeout=known.timeout, users=known.users)
    elif user or password:
        single = replace(
            known, user=user or known.user, password=password or known.password, token=""
        )
    else:
        return options
    return replace(options, authorization=single)


def _tls(options: Options, flags: Flags) -> Options:
    if flags.given.get("tls") is False:
        return replace(options, tls=None)
    names = ("tls", "tlsverify", "tlscert", "tlskey", "tlscacert")
    if not any(name in flags.given for name in names):
        return options
    for name, what in (("tlscert", "certificate"), ("tlskey", "private key")):
        if not flags.text(name):
            raise BadFlag(f"TLS needs a server {what}: give it with --{name}")
    pair = CertificatePair(flags.text("tlscert"), flags.text("tlskey"))
    known = options.tls or TlsOptions()
    made = replace(
        known,
        certificates=(pair,),
        ca_file=flags.text("tlscacert"),
        verify=flags.on("tlsverify"),
    )
    _check_files(made)
    return replace(options, tls=made)


def _check_files(tls: TlsOptions) -> None:
    try:
        check_pair(tls.certificates[0])
        if tls.ca_file:
            check_authority(tls.ca_file)
    except BadTlsFile as error:
        raise BadFlag(f"TLS cannot be used: {error}") from error


def _jetstream(options: Options, flags: Flags) -> Options:
    stream = options.jetstream
    if "jetstream" in flags.given:
        stream = (stream or JetStreamOptions()) if flags.on("jetstream") else None
    if stream is not None and flags.text("store_dir"):
        stream = replace(stream, store_dir=flags.text("store_dir"))
    return replace(options, jetstream=stream)


_STEPS: tuple[Callable[[Options, Flags], Options], ...] = (
    _addresses,
    _names,
    _cluster,
    _log,
    _credentials,
    _tls,
    _jetstream,
)
