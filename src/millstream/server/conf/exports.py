"""``exports`` and ``imports`` of an account as they stand in a file."""

from collections.abc import Callable
from typing import TypeVar

from millstream.accounts.account import Latency
from millstream.server.conf.setting import Setting, Table, Values, read
from millstream.server.conf.syntax import ConfError
from millstream.server.options.auth_options import ExportOptions, ImportOptions

T = TypeVar("T")

_RESPONSE_TYPES = {
    "single": "singleton",
    "singleton": "singleton",
    "stream": "stream",
    "chunk": "chunked",
    "chunked": "chunked",
}
_FOR_SERVICES = ("response_type", "response_threshold", "latency", "allow_trace")


def exports(setting: Setting) -> tuple[ExportOptions, ...]:
    """Read an array of exports."""
    return _each(setting, _export)


def imports(setting: Setting) -> tuple[ImportOptions, ...]:
    """Read an array of imports; two of one service's subject would hide each other."""
    made = _each(setting, _import)
    seen: set[tuple[str, str]] = set()
    for item in made:
        if item.service and (item.account, item.to) in seen:
            setting.report(f"imports a service of {item.account!r} as {item.to!r} twice")
        if item.service:
            seen.add((item.account, item.to))
    return made


def _each(setting: Setting, one: Callable[[Setting], T | None]) -> tuple[T, ...]:
    made = []
    for element in setting.elements():
        try:
            item = one(element)
        except ConfError as error:
            setting.findings.problems.append(error)
        else:
            if item is not None:
                made.append(item)
    return tuple(made)


def _export(setting: Setting) -> ExportOptions | None:
    values = read(setting.block(), _EXPORT, setting.findings)
    kind = _kind(values, setting, "an export")
    if kind is None:
        return None
    for name in _FOR_SERVICES:
        if kind == "stream" and name in values:
            raise setting.wrong(f"has '{name}' on a stream: only services answer")
    return ExportOptions(subject=values.pop(kind), service=kind == "service", **values)


def _kind(values: Values, setting: Setting, what: str) -> str | None:
    """Return whether ``stream`` or ``service`` was given; None when that was in error."""
    if "stream" in values and "service" in values:
        raise setting.wrong(f"has {what} that is both a stream and a service: make two of it")
    return "stream" if "stream" in values else "service" if "service" in values else None


def _response_type(setting: Setting) -> str:
    kind = _RESPONSE_TYPES.get(setting.text().lower())
    if kind is None:
        raise setting.wrong(f"must be singleton, stream or chunked, not {setting.value!r}")
    return kind


def _accounts(setting: Setting) -> tuple[str, ...]:
    return tuple(element.text() for element in setting.elements())


def _latency(setting: Setting) -> Latency:
    if isinstance(setting.value, str):
        return Latency(setting.value)
    values = read(setting.block(), _LATENCY, setting.findings)
    if "subject" not in values:
        raise setting.wrong("needs a subject to report to")
    return Latency(**values)


def _sampling(setting: Setting) -> int:
    if isinstance(setting.value, str):
        text = setting.value.strip().lower()
        if text == "headers":
            return 0
        sample = int(text.removesuffix("%")) if text.removesuffix("%").isdecimal() else -1
    else:
        sample = setting.integer()
    if not 1 <= sample <= 100:
        raise setting.wrong(f"must be 1% to 100% or headers, not {setting.value!r}")
    return sample


def _import(setting: Setting) -> ImportOptions | None:
    values = read(setting.block(), _IMPORT, setting.findings)
    kind = _kind(values, setting, "an import")
    if kind is None:
        return None
    account, subject = values.pop(kind)
    if kind == "service":
        if "allow_trace" in values:
            raise setting.wrong("has 'allow_trace' on a service import: only streams take it")
        values.pop("prefix", None)
        values["to"] = values.get("to") or subject
    elif values.get("to") and values.get("prefix"):
        raise setting.wrong("has an import with both 'prefix' and 'to': keep one")
    return ImportOptions(account, subject, service=kind == "service", **values)


def _remote(setting: Setting) -> tuple[str, str]:
    values = read(setting.block(), _REMOTE, setting.findings)
    if not (values.get("account") and values.get("subject")):
        raise setting.wrong("needs both: { account: NAME, subject: SUBJECT }")
    return values["account"], values["subject"]


_LATENCY: Table = {"subject": ("subject", Setting.text), "sampling": ("sampling", _sampling)}
_REMOTE: Table = {"account": ("account", Setting.text), "subject": ("subject", Setting.text)}
_EXPORT: Table = {
    "stream": ("stream", Setting.text),
    "service": ("service", Setting.text),
    **dict.fromkeys(("response", "response_type"), ("response_type", _response_type)),
    **dict.fromkeys(
        ("threshold", "response_threshold", "response_max_time", "response_time"),
        ("response_threshold", Setting.duration),
    ),
    "accounts": ("accounts", _accounts),
    "latency": ("latency", _latency),
    "account_token_position": ("account_token_position", Setting.integer),
    "allow_trace": ("allow_trace", Setting.switch),
}
_IMPORT: Table = {
    "stream": ("stream", _remote),
    "service": ("service", _remote),
    "prefix": ("prefix", Setting.text),
    "to": ("to", Setting.text),
    "share": ("share", Setting.switch),
    "allow_trace": ("allow_trace", Setting.switch),
}
