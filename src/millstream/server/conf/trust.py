"""Operators, trusted keys and account resolvers as they stand in a file."""

import re
from pathlib import Path

from millstream.accounts import jwt, nkeys
from millstream.accounts.jwt_kind import JwtKind
from millstream.accounts.nkeys import Role
from millstream.server.conf.setting import Setting, Table, Values, ignored, read
from millstream.server.conf.syntax import ConfBlock, ConfError
from millstream.server.options.auth_options import (
    DirectoryResolver,
    MemoryResolver,
    Resolver,
    UrlResolver,
)
from millstream.wire.info import NATS_VERSION

_INLINE = "eyJ"
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_MEMORY = re.compile(r"(?i)(MEM|MEMORY)\s*")
_URL = re.compile(r'(?i)URL(?:\(\s*"?([^\s"]*)"?\s*\))?\s*')
_DECORATED = re.compile(r"-{3,}[^\n]*-{3,}\s*\n([\s\S]+?)\n\s*-{3,}")


def operators(setting: Setting) -> tuple[str, ...]:
    """Read operator JWTs, given in place or by file."""
    return tuple(_operator(text, setting) for text in setting.texts())


def _operator(text: str, setting: Setting) -> str:
    token = text if text.startswith(_INLINE) else _from_file(text, setting)
    try:
        claims = jwt.decode(token, JwtKind.OPERATOR)
    except jwt.Refused as error:
        raise setting.wrong(f"holds no operator JWT: {error}") from error
    _check_version(claims.nats.get("assert_server_version") or "", setting)
    for text in claims.unheeded:
        setting.note(f"has a JWT whose {text}")
    return token


def _check_version(least: str, setting: Setting) -> None:
    """Refuse an operator who asks for a newer server than clients are told that this one is."""
    if not least:
        return
    if not _VERSION.fullmatch(least):
        raise setting.wrong(f"has a JWT whose 'assert_server_version' {least!r} is not like 2.15.1")
    if tuple(map(int, least.split("."))) > tuple(map(int, NATS_VERSION.split("."))):
        raise setting.wrong(
            f"has a JWT whose 'assert_server_version' is {least}: this server is as {NATS_VERSION}"
        )


def _from_file(path: str, setting: Setting) -> str:
    try:
        text = Path(path).read_text()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise setting.wrong(f"names {path!r}, which cannot be read: {reason}") from error
    decorated = _DECORATED.search(text)
    return (decorated[1] if decorated else text).strip()


def system_account_of(operator: str) -> str:
    """Return the system account that an operator's JWT names, if any."""
    claims = jwt.decode(operator, JwtKind.OPERATOR)
    named = claims.nats.get("system_account", "")
    return named if isinstance(named, str) else ""


def trusted_keys(setting: Setting) -> tuple[str, ...]:
    """Read public operator keys."""
    keys = setting.texts()
    for key in keys:
        if not nkeys.is_public(key, Role.OPERATOR):
            raise setting.wrong(f"must list public operator keys (O…), not {key!r}")
    return keys


def preload(setting: Setting) -> tuple[tuple[str, str], ...]:
    """Read account JWTs by public key."""
    made = []
    for inner in setting.inner():
        try:
            jwt.decode(inner.text(), JwtKind.ACCOUNT)
            made.append((inner.key, inner.text()))
        except jwt.Refused as error:
            inner.report(f"holds no account JWT: {error}")
        except ConfError as error:
            setting.findings.problems.append(error)
    return tuple(made)


def resolver(setting: Setting) -> Resolver:
    """Read where account JWTs come from."""
    if isinstance(setting.value, ConfBlock):
        return _directory(setting)
    text = setting.text()
    if _MEMORY.search(text):
        return MemoryResolver()
    url = _URL.search(text)
    if url is not None and re.match(r"https?://[^/]", url[1] or ""):
        return UrlResolver(url[1])
    raise setting.wrong('must be MEMORY, URL("https://…") or a block with type and dir')


def _directory(setting: Setting) -> Resolver:
    values = read(setting.block(), _DIRECTORY, setting.findings)
    kind = values.pop("kind", "").upper()
    if kind in ("MEM", "MEMORY"):
        return MemoryResolver()
    if kind not in ("FULL", "CACHE"):
        raise setting.wrong("must have a type: full, cache or memory")
    _check_directory(values, setting)
    if kind == "CACHE":
        _refuse(values, ("allow_delete",), "a cache", setting)
        if any(key.lower() == "interval" for key in setting.block()):
            raise setting.wrong("has interval, which a cache does not take")
        if "hard_delete" in values:
            raise setting.wrong("has hard_delete, which a cache does not take")
    else:
        _refuse(values, ("ttl",), "a full resolver", setting)
        if "hard_delete" in values and not values.get("allow_delete"):
            raise setting.wrong("has hard_delete without allow_delete: add it")
    return DirectoryResolver(kind, **values)


def _check_directory(values: Values, setting: Setting) -> None:
    directory = values.get("directory", "")
    if not directory:
        raise setting.wrong("has no dir: name a directory")
    path = Path(directory)
    if path.exists() and not path.is_dir():
        raise setting.wrong(f"has a dir {directory!r} that is not a directory")


def _refuse(values: Values, names: tuple[str, ...], kind: str, setting: Setting) -> None:
    for name in names:
        if values.get(name):
            raise setting.wrong(f"has {name}, which {kind} does not take")


_DIRECTORY: Table = {
    "dir": ("directory", Setting.text),
    "type": ("kind", Setting.text),
    "allow_delete": ("allow_delete", Setting.switch),
    "hard_delete": ("hard_delete", Setting.switch),
    "limit": ("limit", Setting.integer),
    "ttl": ("ttl", Setting.duration),
    "interval": ("", ignored(Setting.duration, "there are no other servers to compare with")),
    "timeout": ("timeout", Setting.duration),
}
