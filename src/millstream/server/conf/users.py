"""Users and the ``authorization`` block as they stand in a file."""

from msgspec.structs import replace

from millstream.accounts import nkeys
from millstream.accounts.callout.terms import CalloutTerms
from millstream.accounts.nkeys import Role
from millstream.server.conf.permissions import permissions
from millstream.server.conf.setting import Setting, Table, Values, read
from millstream.server.conf.syntax import ConfError
from millstream.server.options.auth_options import Authorization, PermissionOptions, UserOptions

CONNECTION_TYPES = (
    "STANDARD",
    "WEBSOCKET",
    "LEAFNODE",
    "LEAFNODE_WS",
    "MQTT",
    "MQTT_WS",
    "IN_PROCESS",
)
_LONG_TIMEOUT = 60.0


def users(setting: Setting) -> tuple[UserOptions, ...]:
    """Read an array of users; a bad one is reported and left out."""
    made = []
    for element in setting.elements():
        try:
            made.append(_user(element))
        except ConfError as error:
            setting.findings.problems.append(error)
    return tuple(made)


def _user(setting: Setting) -> UserOptions:
    known = len(setting.findings.problems)
    user = UserOptions(**read(setting.block(), _USER, setting.findings))
    if not user.id and len(setting.findings.problems) == known:
        raise setting.wrong("has an entry without a name: add a 'user' or an 'nkey'")
    if user.nkey and not nkeys.is_public(user.nkey, Role.USER):
        raise setting.wrong(f"has an nkey {user.nkey!r} that is not a public user key (U…)")
    if user.nkey and (user.name or user.password):
        raise setting.wrong("has an entry with both an nkey and a name or password: keep one")
    return user


def _connection_types(setting: Setting) -> tuple[str, ...]:
    types = tuple(kind.upper() for kind in setting.texts())
    for kind in types:
        if kind not in CONNECTION_TYPES:
            known = ", ".join(CONNECTION_TYPES)
            raise setting.wrong(f"names an unknown connection type {kind!r}: one of {known}")
    return types


def with_defaults(
    listed: tuple[UserOptions, ...], default: PermissionOptions | None
) -> tuple[UserOptions, ...]:
    """Return the users, those without permissions of their own with ``default``."""
    if default is None:
        return listed
    return tuple(
        user if user.permissions is not None else replace(user, permissions=default)
        for user in listed
    )


def authorization(setting: Setting) -> Authorization:
    """Read the ``authorization`` block."""
    values = read(setting.block(), _AUTHORIZATION, setting.findings)
    default = values.pop("default_permissions", None)
    made = Authorization(**values)
    if (made.user or made.password) and made.token:
        raise setting.wrong("has both a user and a token: keep one")
    if made.users is None:
        return made
    if made.user or made.token:
        alone = "user" if made.user else "token"
        raise setting.wrong(f"has both a single {alone} and a users array: keep one")
    return replace(made, users=with_defaults(made.users, default))


def _timeout(setting: Setting) -> float:
    seconds = setting.timeout()
    if seconds > _LONG_TIMEOUT:
        setting.warn(f"of {seconds:g} s is long: below a minute is wise; write '1m' in quotes")
    return seconds


def simple_authorization(setting: Setting) -> Authorization:
    """Read an ``authorization`` block that holds a single user or token, as WebSocket has."""
    values: Values = read(setting.block(), _SIMPLE, setting.findings)
    return Authorization(**values)


def _callout(setting: Setting) -> CalloutTerms:
    """Read which service says who clients are."""
    values = read(setting.block(), _CALLOUT, setting.findings)
    if not nkeys.is_public(values.get("issuer", ""), Role.ACCOUNT):
        raise setting.wrong("needs an issuer: the public account key (A…) that signs the answers")
    if not values.get("auth_users"):
        raise setting.wrong("needs auth_users: the users of the service itself")
    if values.get("xkey") and not nkeys.is_public(values["xkey"], Role.CURVE):
        raise setting.wrong(f"has an xkey {values['xkey']!r} that is not a public curve key (X…)")
    return CalloutTerms(**{key: value for key, value in values.items() if value})


def _proxy_required(setting: Setting) -> None:
    if setting.switch():
        raise setting.wrong("is not supported: there are no trusted proxies")


_NAME = dict.fromkeys(("user", "username"), ("name", Setting.text))
_PASSWORD = dict.fromkeys(("pass", "password"), ("password", Setting.text))
_USER: Table = {
    **_NAME,
    **_PASSWORD,
    "nkey": ("nkey", Setting.text),
    **dict.fromkeys(("permission", "permissions", "authorization"), ("permissions", permissions)),
    **dict.fromkeys(
        ("allowed_connection_types", "connection_types", "clients"),
        ("connection_types", _connection_types),
    ),
    "proxy_required": ("", _proxy_required),
}
_SINGLE: Table = {
    **dict.fromkeys(("user", "username"), ("user", Setting.text)),
    **_PASSWORD,
    "token": ("token", Setting.text),
}
_AUTHORIZATION: Table = {
    **_SINGLE,
    "timeout": ("timeout", _timeout),
    "users": ("users", users),
    **dict.fromkeys(
        ("default_permission", "default_permissions", "permissions"),
        ("default_permissions", permissions),
    ),
    **dict.fromkeys(("auth_callout", "auth_hook"), ("callout", _callout)),
    "proxy_required": ("", _proxy_required),
}
_SIMPLE: Table = {**_SINGLE, "timeout": ("timeout", Setting.timeout)}
_CALLOUT: Table = {
    "issuer": ("issuer", Setting.text),
    **dict.fromkeys(("account", "acc"), ("account", Setting.text)),
    **dict.fromkeys(("auth_users", "users"), ("auth_users", Setting.texts)),
    **dict.fromkeys(("xkey", "key"), ("xkey", Setting.text)),
    "allowed_accounts": ("allowed_accounts", Setting.texts),
}
