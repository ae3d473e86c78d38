"""``permissions { publish, subscribe, allow_responses }`` as it stands in a file."""

from msgspec.structs import replace

from millstream.server.conf.setting import Setting, Table, read
from millstream.server.conf.syntax import Block
from millstream.server.options.auth_options import Permissions, ResponseRules, SubjectRules
from millstream.subjects.subject import is_pattern


def permissions(setting: Setting) -> Permissions:
    """Read a permissions block."""
    made = Permissions(**read(setting.block(), _PERMISSIONS, setting.findings))
    publish = made.publish or SubjectRules()
    if made.responses is not None and publish.allow is None:
        # Who may only answer may not publish freely.
        made = replace(made, publish=replace(publish, allow=()))
    return made


def _publish(setting: Setting) -> SubjectRules | None:
    return _rules(setting, queues=False)


def _subscribe(setting: Setting) -> SubjectRules | None:
    return _rules(setting, queues=True)


def _rules(setting: Setting, *, queues: bool) -> SubjectRules | None:
    if not isinstance(setting.value, Block):
        return SubjectRules(allow=_subjects(setting, queues=queues))
    if not setting.value:
        return None
    table: Table = {
        "allow": ("allow", lambda inner: _subjects(inner, queues=queues)),
        "deny": ("deny", lambda inner: _subjects(inner, queues=queues)),
    }
    return SubjectRules(**read(setting.value, table, setting.findings))


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


_RESPONSES: Table = {
    **dict.fromkeys(
        ("max", "max_msgs", "max_messages", "max_responses"), ("max_messages", Setting.integer)
    ),
    **dict.fromkeys(("expires", "expiration", "ttl"), ("expires", Setting.duration)),
}
_PERMISSIONS: Table = {
    **dict.fromkeys(("pub", "publish", "import"), ("publish", _publish)),
    **dict.fromkeys(("sub", "subscribe", "export"), ("subscribe", _subscribe)),
    **dict.fromkeys(("publish_allow_responses", "allow_responses"), ("responses", _responses)),
}
