"""What fits no single setting: options that contradict each other, found before anything starts."""

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from millstream.accounts import nkeys
from millstream.accounts.nkeys import Role
from millstream.server.options.auth_options import DirectoryResolver, TrustOptions, UrlResolver
from millstream.server.options.config_error import ConfigError
from millstream.server.options.loaded import Places
from millstream.server.options.options import Options, WebsocketOptions
from millstream.server.options.serve_config import MAX_PAYLOAD_LIMIT

_OPERATOR = ("operator", "operators", "roots", "root", "root_operators", "root_operator")
_HTTPS = ("https", "https_port")
_WEBSOCKET = ("websocket", "ws")
_RESERVED_HEADERS = ("host", "content-length", "connection", "upgrade", "nats-no-masking")


class Contradiction(NamedTuple):
    """What makes options impossible to serve, and the settings of a file that say it, if any do."""

    text: str
    settings: tuple[str, ...]


def refuse_contradictions(options: Options, file: str, places: Places) -> None:
    """Raise ``ConfigError`` with all contradictions, each with the place in a file that says it."""
    found = contradictions(options)
    if found:
        raise ConfigError("\n".join(_located(each, file, places) for each in found))


def _located(found: Contradiction, file: str, places: Places) -> str:
    for setting in found.settings:
        if setting in places:
            return "{}:{}: {}".format(*places[setting], found.text)
    return f"{file}: {found.text}" if file else found.text


def contradictions(options: Options) -> list[Contradiction]:
    """Return what makes these options impossible to serve; empty when they are fine."""
    found = [*_limits(options), *_users(options), *_trust(options), *_monitoring(options)]
    if options.websocket is not None:
        found += _websocket(options, options.websocket)
    return [*found, *_cluster(options), *_fleet(options)]


def _fleet(options: Options) -> Iterator[Contradiction]:
    """Say what a fleet does not go with yet."""
    stream = options.jetstream
    if options.fleet is None:
        return
    if stream is None:
        yield Contradiction("a fleet shares streams: switch jetstream on", ("fleet",))
        return
    if stream.cold.place:
        yield Contradiction(
            "a fleet keeps all history in its object store: leave `cold` out",
            ("fleet", "jetstream"),
        )
    if stream.wal_shards != 1:
        yield Contradiction("a fleet has one log: leave wal_shards out", ("fleet", "jetstream"))
    if options.cluster is not None:
        yield Contradiction(
            "the members of a fleet are not connected by routes yet: leave `cluster` out",
            ("fleet", "cluster"),
        )


def _cluster(options: Options) -> Iterator[Contradiction]:
    """Two members must not both capture a publish and answer it."""
    stream = options.jetstream
    if options.cluster is not None and stream is not None and not stream.domain:
        yield Contradiction(
            "jetstream on a member of a cluster needs a domain of its own, as members do not share"
            " streams: set jetstream { domain: … }, or switch JetStream off here",
            ("cluster", "jetstream"),
        )


def _limits(options: Options) -> Iterator[Contradiction]:
    limits, duck = options.limits, options.lame_duck
    if not 1 <= limits.max_payload <= MAX_PAYLOAD_LIMIT:
        text = f"max_payload must be 1 to {MAX_PAYLOAD_LIMIT} bytes, not {limits.max_payload}"
        yield Contradiction(text, ("max_payload",))
    elif limits.max_payload > limits.max_pending:
        text = f"max_payload ({limits.max_payload}) is above max_pending ({limits.max_pending})"
        yield Contradiction(text, ("max_pending", "max_payload"))
    if duck.grace_period >= duck.duration:
        yield Contradiction(
            f"lame_duck_grace_period ({duck.grace_period:g}s) must be shorter "
            f"than lame_duck_duration ({duck.duration:g}s)",
            ("lame_duck_grace_period", "lame_duck_duration"),
        )
    if not 0 <= options.port <= 65535:
        text = f"port must be up to 65535, or -1 for a free one, not {options.port}"
        yield Contradiction(text, ("port", "listen"))


def _users(options: Options) -> Iterator[Contradiction]:
    seen: set[str] = set()
    for user in options.users:
        if user.id in seen:
            text = f"the user {user.id!r} is there twice: keep one, or rename the other"
            yield Contradiction(text, ("authorization", "accounts"))
        seen.add(user.id)
    if options.users and (options.authorization.user or options.authorization.token):
        text = "a single user or token excludes a list of users: move it into the list"
        yield Contradiction(text, ("authorization", "accounts"))
    yield from _no_auth_user(options, options.no_auth_user, "no_auth_user", "no_auth_user")
    names = [account.name for account in options.accounts]
    system = options.system_account
    if system and names and not options.trust.required and system not in names:
        text = f"system_account {system!r} is not among the accounts: add it there"
        yield Contradiction(text, ("system_account", "system"))


def _no_auth_user(options: Options, name: str, key: str, setting: str) -> Iterator[Contradiction]:
    if not name:
        return
    if options.trust.required:
        text = f"{key} does not go with an operator: clients must show a JWT"
        yield Contradiction(text, (setting,))
    elif name not in {user.id for user in options.users}:
        yield Contradiction(f"{key} {name!r} is not among the users: add it there", (setting,))


def _trust(options: Options) -> Iterator[Contradiction]:
    trust = options.trust
    if not trust.required:
        return
    if trust.resolver is None:
        text = "an operator needs a resolver: add resolver: MEMORY and resolver_preload"
        yield Contradiction(text, _OPERATOR)
    if options.authorization.callout is not None:
        text = "an operator's accounts name their callouts in JWTs: remove auth_callout"
        yield Contradiction(text, ("authorization",))
    if options.accounts or options.users:
        text = "an operator's accounts and users come as JWTs: remove accounts and users"
        yield Contradiction(text, ("accounts", "authorization"))
    if trust.operators and trust.trusted_keys:
        text = "operator and trusted_keys exclude each other: keep the operator"
        yield Contradiction(text, ("trusted_keys", "trusted"))
    if options.system_account and _names_another(trust, options.system_account):
        text = "system_account is another than the operator's JWT names: remove it"
        yield Contradiction(text, ("system_account", "system"))
    if isinstance(trust.resolver, DirectoryResolver) and not options.system_account:
        text = "a directory resolver needs a system_account"
        yield Contradiction(text, ("resolver", "account_resolver", "accounts_resolver"))
    if isinstance(trust.resolver, UrlResolver) and trust.preload:
        text = "a URL resolver takes no resolver_preload: remove it"
        yield Contradiction(text, ("resolver_preload",))
    for key in trust.pinned_accounts or ():
        if not nkeys.is_public(key, Role.ACCOUNT):
            text = f"resolver_pinned_accounts must list account keys (A…), not {key!r}"
            yield Contradiction(text, ("resolver_pinned_accounts",))


def _names_another(trust: TrustOptions, system: str) -> bool:
    from millstream.server.conf.trust import system_account_of  # operators alone need it

    named = {system_account_of(token) for token in trust.operators} - {""}
    return bool(named) and system not in named


def _monitoring(options: Options) -> Iterator[Contradiction]:
    monitor = options.monitor
    if monitor.port is not None and monitor.tls_port is not None:
        text = "monitoring listens over HTTP or HTTPS, not both: remove http or https"
        yield Contradiction(text, _HTTPS)
    if monitor.tls_port is not None and options.tls is None:
        yield Contradiction("HTTPS monitoring needs a tls block: add one, or use http", _HTTPS)


def _websocket(options: Options, websocket: WebsocketOptions) -> Iterator[Contradiction]:
    if websocket.tls is None and not websocket.no_tls:
        yield Contradiction("websocket needs a tls block, or no_tls: true", _WEBSOCKET)
    for origin in websocket.allowed_origins:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            text = f"websocket allowed_origins must be http or https URLs, not {origin!r}"
            yield Contradiction(text, _WEBSOCKET)
    name = websocket.no_auth_user
    yield from _no_auth_user(options, name, "websocket no_auth_user", "websocket")
    single = websocket.authorization
    if single is not None and (single.user or single.token) and options.users:
        yield Contradiction("a websocket user or token excludes users: remove it", _WEBSOCKET)
    if websocket.jwt_cookie and not options.trust.required:
        yield Contradiction("websocket jwt_cookie needs an operator or trusted_keys", _WEBSOCKET)
    for name, _ in websocket.headers:
        if name.lower() in _RESERVED_HEADERS or name.lower().startswith("sec-websocket-"):
            yield Contradiction(f"websocket header {name!r} is not allowed: remove it", _WEBSOCKET)
