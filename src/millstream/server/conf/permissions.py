"""``permissions { publish, subscribe, allow_responses }`` as it stands in a file."""

from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import replace

from millstream.server.conf.setting import Setting, Table, read
from millstream.server.conf.syntax import ConfBlock
from millstream.server.options.auth_options import PermissionOptions, ResponseRules, SubjectRules
from millstream.subjects.subject import is_pattern

_Subjects: TypeAlias = Callable[[Setting], tuple[str, ...]]


def permissions(setting: Setting) -> PermissionOptions:
    """Read a permissions block."""
    made = PermissionOptions(**read(setting.block(), _PERMISSIONS, setting.findings))
    publish = made.publish or SubjectRules()
    if made.responses is not None and publish.allow is None:
        # Who may only answer may not publish freely.
        made = replace(made, publish=replace(publish, allow=()))
    return made


def subject_rules(setting: Setting) -> SubjectRules | None:
    """Read one list of subjects, or an allow and a deny list."""
    return _rules(setting, _plain, _PUBLISH)


def _subscribe(setting: Setting) -> SubjectRules | None:
    return _rules(setting, _with_queues, _SUBSCRIBE)


def _rules(setting: Setting, alone: _Subjects, table: Table) -> SubjectRules | None:
    if not isinstance(setting.value, ConfBlock):
        return SubjectRules(allow=alone(setting))
    if not setting.value:
        return None
    return SubjectRules(**read(setting.value, table, setting.findings))


def _plain(setting: Setting) -> tuple[str, ...]:
    return _subjects(setting, queues=False)


def _with_queues(setting: Setting) -> tuple[str, ...]:
    return _subjects(setting, queues=True)


def _subjects(setting: Setting, *, queues: bool) -> tuple[str, ...]:
    subjects = setting.texts()
    for subject in subjects:
        if not _is_rule(subject, queues=queues):
            form = "a subject, or a subject and a queue group" if queues else "a subject"
            raise setting.wrong(f"holds {subject!r}, which is not {form}")
    return subjects


def _is_rule(text: str, *, queues: bool) -> bool:
    if is_pattern(text):
        return True
    words = text.split()
    return queues and len(words) == 2 and all(is_pattern(word) for word in words)


def _responses(setting: Setting) -> ResponseRules | None:
    if isinstance(setting.value, bool):
        return ResponseRules() if setting.value else None
    values = read(setting.block(), _RESPONSES, setting.findings)
    return ResponseRules(**{name: value for name, value in values.items() if value})


_PUBLISH: Table = {"allow": ("allow", _plain), "deny": ("deny", _plain)}
_SUBSCRIBE: Table = {"allow": ("allow", _with_queues), "deny": ("deny", _with_queues)}
_RESPONSES: Table = {
    **dict.fromkeys(
        ("max", "max_msgs", "max_messages", "max_responses"), ("max_messages", Setting.integer)
    ),
    **dict.fromkeys(("expires", "expiration", "ttl"), ("expires", Setting.duration)),
}
_PERMISSIONS: Table = {
    **dict.fromkeys(("pub", "publish", "import"), ("publish", subject_rules)),
    **dict.fromkeys(("sub", "subscribe", "export"), ("subscribe", _subscribe)),
    **dict.fromkeys(("publish_allow_responses", "allow_responses"), ("responses", _responses)),
}
