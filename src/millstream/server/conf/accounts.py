"""The ``accounts`` block as it stands in a file."""

from msgspec.structs import replace

from millstream.accounts import nkeys
from millstream.accounts.account import AccountLimits, StreamLimits, TraceTerms
from millstream.accounts.nkeys import Role
from millstream.server.conf.exports import exports, imports
from millstream.server.conf.mappings import mappings
from millstream.server.conf.permissions import permissions
from millstream.server.conf.setting import Setting, Table, ignored, read
from millstream.server.conf.syntax import ConfError
from millstream.server.conf.users import users, with_defaults
from millstream.server.options.account_checks import sharing_problems
from millstream.server.options.auth_options import (
    GLOBAL_ACCOUNT,
    AccountOptions,
)
from millstream.subjects.subject import is_literal


def accounts(setting: Setting) -> tuple[AccountOptions, ...]:
    """Read the accounts: names alone in an array, or a block for each."""
    if isinstance(setting.value, list):
        return _names(setting)
    known = len(setting.findings.problems)
    made = []
    for inner in setting.inner():
        try:
            made.append(_account(inner))
        except ConfError as error:
            setting.findings.problems.append(error)
    if len(setting.findings.problems) == known:
        for problem in sharing_problems(made):
            setting.report(problem)
    return tuple(made)


def _names(setting: Setting) -> tuple[AccountOptions, ...]:
    names: list[str] = []
    for element in setting.elements():
        name = element.text()
        _check_name(setting, name)
        if name in names:
            raise setting.wrong(f"lists the account {name!r} twice")
        names.append(name)
    return tuple(AccountOptions(name) for name in names)


def _check_name(setting: Setting, name: str) -> None:
    if name == GLOBAL_ACCOUNT:
        raise setting.wrong(f"is about {GLOBAL_ACCOUNT}, which is reserved: take another name")


def _account(setting: Setting) -> AccountOptions:
    block = setting.block()
    _check_name(setting, setting.key)
    account = AccountOptions(setting.key, **read(block, _ACCOUNT, setting.findings))
    return replace(account, users=with_defaults(account.users, account.default_permissions))


def _nkey(setting: Setting) -> str:
    key = setting.text()
    if not nkeys.is_public(key, Role.ACCOUNT):
        raise setting.wrong(f"must be a public account key (A…), not {key!r}")
    return key


def _jetstream(setting: Setting) -> StreamLimits | None:
    if isinstance(setting.value, bool):
        return StreamLimits() if setting.value else None
    if isinstance(setting.value, str):
        return StreamLimits() if enabled(setting) else None
    return StreamLimits(**read(setting.block(), _JETSTREAM, setting.findings))


def enabled(setting: Setting) -> bool:
    """Read ``enabled`` or ``disabled``."""
    word = setting.text().lower()
    if word not in ("enabled", "enable", "disabled", "disable"):
        raise setting.wrong(f"must be enabled, disabled or a block, not {setting.value!r}")
    return word.startswith("enable")


def _cluster_traffic(setting: Setting) -> None:
    if setting.text() not in ("system", "owner", ""):
        raise setting.wrong(f"must be system or owner, not {setting.value!r}")


def _trace(setting: Setting) -> TraceTerms | None:
    """Read where messages with a ``traceparent`` are traced to."""
    if isinstance(setting.value, str):
        return TraceTerms(_trace_dest(setting))
    values = read(setting.block(), _TRACE, setting.findings)
    if "dest" not in values:
        if "sampling" in values:
            setting.warn("has a sampling without a dest: nothing is traced")
        return None
    return TraceTerms(**values)


def _trace_dest(setting: Setting) -> str:
    if not is_literal(setting.text()):
        raise setting.wrong(f"must be a subject without wildcards, not {setting.text()!r}")
    return setting.text()


def _trace_sampling(setting: Setting) -> int:
    value = setting.value
    if isinstance(value, str):
        text = value.strip().removesuffix("%")
        number = int(text) if text.isdecimal() else -1
    else:
        number = setting.integer()
    if not 1 <= number <= 100:
        raise setting.wrong(f"must be 1 to 100, not {value!r}")
    return number


_TRACE: Table = {"dest": ("dest", _trace_dest), "sampling": ("sampling", _trace_sampling)}
_NO_PEERS = "it tunes clusters, and this server is one"


def _limits(setting: Setting) -> AccountLimits:
    return AccountLimits(**read(setting.block(), _LIMITS, setting.findings))


_JETSTREAM: Table = {
    **dict.fromkeys(("max_memory", "max_mem", "mem", "memory"), ("max_memory", Setting.integer)),
    **dict.fromkeys(
        ("max_store", "max_file", "max_disk", "store", "disk"), ("max_storage", Setting.integer)
    ),
    **dict.fromkeys(("max_streams", "streams"), ("max_streams", Setting.integer)),
    **dict.fromkeys(("max_consumers", "consumers"), ("max_consumers", Setting.integer)),
    **dict.fromkeys(
        ("max_bytes_required", "max_stream_bytes", "max_bytes"),
        ("max_bytes_required", Setting.switch),
    ),
    **dict.fromkeys(
        ("mem_max_stream_bytes", "memory_max_stream_bytes"),
        ("memory_max_stream_bytes", Setting.integer),
    ),
    **dict.fromkeys(
        ("disk_max_stream_bytes", "store_max_stream_bytes"),
        ("storage_max_stream_bytes", Setting.integer),
    ),
    "max_ack_pending": ("max_ack_pending", Setting.integer),
    "cluster_traffic": ("", ignored(_cluster_traffic, _NO_PEERS)),
}
_LIMITS: Table = {
    **dict.fromkeys(("max_connections", "max_conn"), ("max_connections", Setting.integer)),
    **dict.fromkeys(("max_subscriptions", "max_subs"), ("max_subscriptions", Setting.integer)),
    **dict.fromkeys(("max_payload", "max_pay"), ("max_payload", Setting.integer)),
    **dict.fromkeys(("max_leafnodes", "max_leafs"), ("max_leafnodes", Setting.integer)),
}
_ACCOUNT: Table = {
    "nkey": ("nkey", _nkey),
    "users": ("users", users),
    "default_permissions": ("default_permissions", permissions),
    "exports": ("exports", exports),
    "imports": ("imports", imports),
    **dict.fromkeys(("mappings", "maps"), ("mappings", mappings)),
    "jetstream": ("jetstream", _jetstream),
    "limits": ("limits", _limits),
    **dict.fromkeys(("msg_trace", "trace_dest"), ("trace", _trace)),
}
