"""What fits no single setting: options that contradict each other, found before anything starts."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from millstream.accounts import nkeys
from millstream.accounts.nkeys import Role
from millstream.server.auth_options import DirectoryResolver
from millstream.server.config import MAX_PAYLOAD_LIMIT
from millstream.server.options import Options, WebsocketOptions

_RESERVED_HEADERS = ("host", "content-length", "connection", "upgrade", "nats-no-masking")


def contradictions(options: Options) -> list[str]:
    """Return what makes these options impossible to serve, in words; empty when they are fine."""
    found = [*_limits(options), *_users(options), *_trust(options), *_monitoring(options)]
    if options.websocket is not None:
        found += _websocket(options, options.websocket)
    return found


def _limits(options: Options) -> Iterator[str]:
    limits, duck = options.limits, options.lame_duck
    if not 1 <= limits.max_payload <= MAX_PAYLOAD_LIMIT:
        yield f"max_payload must be 1 to {MAX_PAYLOAD_LIMIT} bytes, not {limits.max_payload}"
    elif limits.max_payload > limits.max_pending:
        yield f"max_payload ({limits.max_payload}) is above max_pending ({limits.max_pending})"
    if duck.grace_period >= duck.duration:
        yield (
            f"lame_duck_grace_period ({duck.grace_period:g}s) must be shorter "
            f"than lame_duck_duration ({duck.duration:g}s)"
        )
    if not 0 <= options.port <= 65535:
        yield f"port must be up to 65535, or -1 for a free one, not {options.port}"


def _users(options: Options) -> Iterator[str]:
    seen: set[str] = set()
    for user in options.users:
        if user.id in seen:
            yield f"the user {user.id!r} is there twice"
        seen.add(user.id)
    if options.users and (options.authorization.user or options.authorization.token):
        yield "a single user or token excludes a list of users: move it into the list"
    yield from _no_auth_user(options, options.no_auth_user, "no_auth_user")
    names = [account.name for account in options.accounts]
    system = options.system_account
    if system and names and not options.trust.required and system not in names:
        yield f"system_account {system!r} is not among the accounts"


def _no_auth_user(options: Options, name: str, key: str) -> Iterator[str]:
    if not name:
        return
    if options.trust.required:
        yield f"{key} does not go with an operator: clients must show a JWT"
    elif name not in {user.id for user in options.users}:
        yield f"{key} {name!r} is not among the users"


def _trust(options: Options) -> Iterator[str]:
    trust = options.trust
    if not trust.required:
        return
    if trust.resolver is None:
        yield "an operator needs a resolver: add resolver: MEMORY and resolver_preload"
    if options.accounts or options.users:
        yield "an operator's accounts and users come as JWTs: remove accounts and users"
    if trust.operators and trust.trusted_keys:
        yield "operator and trusted_keys exclude each other: keep the operator"
    if isinstance(trust.resolver, DirectoryResolver) and not options.system_account:
        yield "a directory resolver needs a system_account"
    for key in trust.pinned_accounts:
        if not nkeys.is_public(key, Role.ACCOUNT):
            yield f"resolver_pinned_accounts must list account keys (A…), not {key!r}"


def _monitoring(options: Options) -> Iterator[str]:
    monitor = options.monitor
    if monitor.port is not None and monitor.tls_port is not None:
        yield "monitoring listens over HTTP or HTTPS, not both: remove http or https"
    if monitor.tls_port is not None and options.tls is None:
        yield "HTTPS monitoring needs a tls block"


def _websocket(options: Options, websocket: WebsocketOptions) -> Iterator[str]:
    if websocket.tls is None and not websocket.no_tls:
        yield "websocket needs a tls block, or no_tls: true"
    for origin in websocket.allowed_origins:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            yield f"websocket allowed_origins must be http or https URLs, not {origin!r}"
    yield from _no_auth_user(options, websocket.no_auth_user, "websocket no_auth_user")
    single = websocket.authorization
    if single is not None and (single.user or single.token) and options.users:
        yield "a websocket user or token excludes users: remove it"
    if websocket.jwt_cookie and not options.trust.required:
        yield "websocket jwt_cookie needs an operator or trusted_keys"
    for name, _ in websocket.headers:
        if name.lower() in _RESERVED_HEADERS or name.lower().startswith("sec-websocket-"):
            yield f"websocket header {name!r} is not allowed"
