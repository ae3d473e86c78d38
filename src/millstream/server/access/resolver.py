"""From a ``resolver`` setting to the parts that keep and find account JWTs."""

import asyncio
from pathlib import Path

from millstream.accounts import jwt
from millstream.accounts.jwt_kind import JwtKind
from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.nats.accounts.accounts import Space
from millstream.nats.resolvers.account_directory import AccountDirectory, DirectoryTerms
from millstream.nats.resolvers.account_fetch import Source
from millstream.nats.resolvers.jwt_files import JwtFiles, Post, read_files, write_file
from millstream.nats.resolvers.system_source import SystemSource
from millstream.nats.sessions import Sessions
from millstream.server.options.auth_options import DirectoryResolver, UrlResolver
from millstream.server.options.config_error import ConfigError
from millstream.server.options.options import Options
from millstream.supervisor import Supervisor


def prepare_directory(options: Options) -> None:
    """Make the resolver's directory, and put into it what the file lists and is newer."""
    resolver = options.trust.resolver
    if not isinstance(resolver, DirectoryResolver):
        return
    directory = Path(resolver.directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        kept = read_files(directory)
        for public, token in options.trust.preload:
            if public not in kept or _issued_at(kept[public]) < _issued_at(token):
                write_file(directory, public, token)
    except OSError as error:
        raise ConfigError(f"resolver: dir: {error.filename}: {error.strerror}") from error


def _issued_at(token: str) -> int:
    try:
        return jwt.decode(token, JwtKind.ACCOUNT).issued_at
    except jwt.Refused:
        return -1


def directory_of(
    options: Options, supervisor: Supervisor, post: Post, clock: Clock
) -> AccountDirectory | None:
    """Return what keeps account JWTs, None where nothing does."""
    resolver = options.trust.resolver
    if not options.trust.required or not isinstance(resolver, DirectoryResolver):
        return None
    path = Path(resolver.directory)
    terms = DirectoryTerms(
        resolver.kind == "CACHE",
        resolver.limit,
        resolver.ttl,
        resolver.allow_delete,
        resolver.hard_delete,
    )
    return AccountDirectory(read_files(path), terms, JwtFiles(path, supervisor, post), clock)


def source_of(
    options: Options,
    sessions: Sessions,
    system: Space | None,
    timers: Timers,
    loop: asyncio.AbstractEventLoop,
) -> Source | None:
    """Return where JWTs of accounts come from that are not known here, None where nowhere."""
    resolver = options.trust.resolver
    if not options.trust.required:
        return None
    if isinstance(resolver, UrlResolver):
        from millstream.nats.resolvers.url_source import UrlSource  # brings ssl along

        return UrlSource(loop, resolver.url)
    if isinstance(resolver, DirectoryResolver) and resolver.kind == "CACHE" and system is not None:
        return SystemSource(sessions, system, timers, resolver.timeout)
    return None
