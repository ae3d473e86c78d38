"""From the options' users, tokens and operators to the ``Credentials`` that the doors ask."""

from millstream.accounts import jwt, permissions
from millstream.accounts.credentials import Credentials, User
from millstream.accounts.permissions import Responses, Rule
from millstream.server.auth_options import (
    GLOBAL_ACCOUNT,
    MemoryResolver,
    Permissions,
    SubjectRules,
    UserOptions,
)
from millstream.server.config import ConfigError
from millstream.server.options import Options


def credentials_of(options: Options) -> Credentials:
    """Return everyone that these options know; raises ``ConfigError``."""
    known = options.authorization
    users = [_user(user, GLOBAL_ACCOUNT) for user in known.users or ()]
    for account in options.accounts:
        users += [_user(user, account.name) for user in account.users]
    if known.user:
        users.append(User(known.user, known.password))
    return Credentials(
        users,
        token=known.token,
        no_auth_user=options.no_auth_user,
        trust=_trust(options),
        map_certificates=options.tls is not None and options.tls.verify_and_map,
    )


def _user(user: UserOptions, account: str) -> User:
    return User(
        user.name,
        user.password,
        user.nkey,
        account,
        _permissions(user.permissions),
        frozenset(user.connection_types),
    )


def _permissions(given: Permissions | None) -> permissions.Permissions:
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


def _trust(options: Options) -> jwt.Trust | None:
    if options.trust.trusted_keys:
        raise ConfigError("trusted_keys is not supported: give the operator's JWT as operator")
    if not options.trust.operators:
        return None
    if not isinstance(options.trust.resolver, MemoryResolver):
        raise ConfigError("only resolver: MEMORY with resolver_preload is supported")
    trust = jwt.Trust(list(options.trust.operators))
    for public, token in options.trust.preload:
        try:
            trust.add_account(token)
        except jwt.Refused as error:
            raise ConfigError(f"resolver_preload: account {public}: {error}") from error
    return trust
