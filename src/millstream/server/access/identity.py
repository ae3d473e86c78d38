"""From the options' users, accounts and operators to the values that the doors believe in."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from millstream.accounts import account, permissions
from millstream.accounts.account import (
    Account,
    Destination,
    Mapping,
    ResponseType,
    StreamLimits,
)
from millstream.accounts.credentials import Credentials, User
from millstream.accounts.permissions import Responses, Rule
from millstream.clock import SystemClock
from millstream.nats.transport.transport import Kind
from millstream.server.options import auth_options
from millstream.server.options.auth_options import (
    GLOBAL_ACCOUNT,
    SYSTEM_ACCOUNT,
    AccountOptions,
    Authorization,
    DirectoryResolver,
    LeafAuthorization,
    PermissionOptions,
    SubjectRules,
    UserOptions,
)
from millstream.server.options.config_error import ConfigError
from millstream.server.options.options import Options

if TYPE_CHECKING:
    from millstream.accounts.jwt import JwtClaims, Trust

log = logging.getLogger(__name__)


class Identities(msgspec.Struct, frozen=True):
    """Everyone the server knows, for all doors and for single ones, and the accounts there are."""

    credentials: Credentials
    accounts: tuple[Account, ...]
    by_kind: dict[Kind, Credentials] = msgspec.field(default_factory=dict)
    system_account: str = SYSTEM_ACCOUNT


def identities_of(options: Options) -> Identities:
    """Return who these options know; raises ``ConfigError``."""
    trust = _trust(options)
    claimed = trust.system_account if trust is not None else ""
    system = options.system_account or claimed or SYSTEM_ACCOUNT
    return Identities(
        _credentials(options, options.authorization, options.no_auth_user, trust),
        accounts_of(options, trust),
        _by_kind(options, trust),
        "" if options.no_system_account else system,
    )


def _credentials(
    options: Options, known: Authorization, no_auth_user: str, trust: "Trust | None"
) -> Credentials:
    users = [_user(user, GLOBAL_ACCOUNT) for user in known.users or ()]
    for listed in options.accounts:
        users += [_user(user, listed.name) for user in listed.users]
    if known.user:
        users.append(User(known.user, known.password))
    return Credentials(
        users,
        token=known.token,
        no_auth_user=no_auth_user,
        trust=trust,
        map_certificates=options.tls is not None and options.tls.verify_and_map,
        closed=known.users is not None,
        callout=options.authorization.callout,
    )


def _by_kind(options: Options, trust: "Trust | None") -> dict[Kind, Credentials]:
    """Return what one kind of connection believes instead; the rest is as everywhere."""
    kinds = {}
    leafs = options.leaf_authorization
    if leafs is not None and (leafs.user or leafs.nkey or leafs.users):
        kinds[Kind.LEAFNODE] = _leaf_credentials(leafs)
    return kinds | _websocket_credentials(options, trust)


def _leaf_credentials(known: LeafAuthorization) -> Credentials:
    users = [_user(user, account or GLOBAL_ACCOUNT) for user, account in known.users]
    if known.user or known.nkey:
        place = known.account or GLOBAL_ACCOUNT
        users.append(User(known.user, known.password, known.nkey, place))
    return Credentials(users)


def _websocket_credentials(options: Options, trust: "Trust | None") -> dict[Kind, Credentials]:
    websocket = options.websocket
    if websocket is None or not (websocket.authorization or websocket.no_auth_user):
        return {}
    known = options.authorization
    single = websocket.authorization
    if single is not None and (single.user or single.token):
        known = replace(single, users=known.users)
    guest = websocket.no_auth_user or options.no_auth_user
    return {Kind.WEBSOCKET: _credentials(options, known, guest, trust)}


def _user(user: UserOptions, account_name: str) -> User:
    return User(
        user.name,
        user.password,
        user.nkey,
        account_name,
        _permissions(user.permissions),
        frozenset(user.connection_types),
    )


def _permissions(given: PermissionOptions | None) -> permissions.Permissions:
    if given is None:
        return permissions.Permissions()
    answers = given.responses
    return permissions.Permissions(
        _rule(given.publish, queues=False),
        _rule(given.subscribe, queues=True),
        None if answers is None else Responses(answers.max_messages, answers.expires),
    )


def _rule(rules: SubjectRules | None, *, queues: bool) -> Rule:
    return Rule() if rules is None else Rule.of(rules.allow, rules.deny, queues=queues)


def _trust(options: Options) -> "Trust | None":
    if not options.trust.required:
        return None
    from millstream.accounts.jwt import Refused, Trust

    trust = Trust(options.trust.operators, options.trust.trusted_keys, _pinned(options))
    for public, token in options.trust.preload:
        try:
            claims = trust.add_account(token)
        except Refused as error:
            raise ConfigError(f"resolver_preload: account {public}: {error}") from error
        tell_unheeded(claims)
    for public, token in kept_tokens(options).items():
        try:
            tell_unheeded(trust.add_account(token))
        except Refused as error:
            log.error("account left out: its JWT in the resolver's dir: %s: %s", public, error)
    return trust


def kept_tokens(options: Options) -> dict[str, str]:
    """Return the account JWTs of a resolver's directory; there are none without one."""
    resolver = options.trust.resolver
    if not isinstance(resolver, DirectoryResolver):
        return {}
    from millstream.nats.resolvers.jwt_files import read_files

    return read_files(Path(resolver.directory))


def _pinned(options: Options) -> tuple[str, ...] | None:
    """Return the accounts whose users alone are let in; an operator's own is one of them."""
    pinned, system = options.trust.pinned_accounts, options.system_account
    return (*pinned, system) if pinned and options.trust.operators and system else pinned


def tell_unheeded(claims: "JwtClaims") -> None:
    """Name in the log what an account's JWT says and the server does not follow."""
    for text in claims.unheeded:
        log.warning("The JWT of account %s: %s", claims.name or claims.subject, text)


API_SUBJECTS = (
    "$JS.API.INFO",
    *(
        f"$JS.API.{word}.>"
        for word in ("STREAM", "CONSUMER", "DIRECT", "META", "SERVER", "ACCOUNT")
    ),
    "$KV.>",
    "$OBJ.>",
)


def accounts_of(options: Options, trust: "Trust | None") -> tuple[Account, ...]:
    """Return the accounts of the file or of the operator, and the global one with its mappings."""
    jetstream = options.jetstream is not None
    mapped = _mappings(options.mappings, options.cluster_name)
    others = {account.name for account in options.accounts} - {options.system_account}
    # Where other accounts may have JetStream, NATS clients of this one have none, as elsewhere.
    made = [Account(GLOBAL_ACCOUNT, mappings=mapped, jetstream=jetstream and not others)]
    made += [_account(listed, options.cluster_name) for listed in options.accounts]
    if trust is not None:
        from millstream.accounts.claims import accounts_of_claims

        now = SystemClock().time_ns() / 1e9
        made += accounts_of_claims(trust.accounts(), now)
    domains = dict(options.default_js_domains)
    return tuple(_with_default_domain(one, domains.get(one.name, "")) for one in made)


def _with_default_domain(made: Account, domain: str) -> Account:
    """Return an account without JetStream whose requests to the API go to a domain elsewhere."""
    if not domain:
        return made
    if made.jetstream:
        log.warning("default_js_domain: account %s has JetStream here, so it keeps it", made.name)
        return made
    to_domain = tuple(
        Mapping(plain, (Destination(f"$JS.{domain}.API.{plain.removeprefix('$JS.API.')}"),))
        for plain in API_SUBJECTS
    )
    return msgspec.structs.replace(made, mappings=(*made.mappings, *to_domain))


def _account(listed: AccountOptions, cluster: str) -> Account:
    return Account(
        listed.name,
        exports=tuple(_export(export) for export in listed.exports),
        imports=tuple(_import(item) for item in listed.imports),
        mappings=_mappings(listed.mappings, cluster),
        limits=listed.limits,
        jetstream=listed.jetstream is not None,
        stream_limits=listed.jetstream or StreamLimits(),
        trace=listed.trace,
    )


def _export(export: auth_options.ExportOptions) -> account.Export:
    return account.Export(
        export.subject,
        export.service,
        export.accounts,
        ResponseType(export.response_type),
        export.response_threshold,
        export.account_token_position,
        export.latency,
        export.allow_trace,
    )


def _import(item: auth_options.ImportOptions) -> account.Import:
    return account.Import(
        item.account,
        item.subject,
        item.service,
        item.to,
        item.prefix,
        item.share,
        item.allow_trace,
    )


def _mappings(listed: tuple[auth_options.MappingOptions, ...], cluster: str) -> tuple[Mapping, ...]:
    return tuple(Mapping(mapping.source, _destinations(mapping, cluster)) for mapping in listed)


def _destinations(mapping: auth_options.MappingOptions, cluster: str) -> tuple[Destination, ...]:
    """Return the destinations for our cluster where there are some, else those for all."""
    ours = [to for to in mapping.destinations if to.cluster and to.cluster == cluster]
    everywhere = [to for to in mapping.destinations if not to.cluster]
    return tuple(Destination(to.subject, to.weight) for to in ours or everywhere)
