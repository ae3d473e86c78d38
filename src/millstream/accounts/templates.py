"""Templates: subjects of a scoped signing key, filled in with what the user's JWT says.

``orders.{{name()}}.{{tag(region)}}.>`` becomes one subject for every value of the tag.
"""

import re
from collections.abc import Iterable
from itertools import product
from typing import Any

import msgspec

from millstream.subjects.subject import is_pattern

_PLACEHOLDER = re.compile(r"\{\{.*?\}\}")
_TAG = re.compile(r"(account-)?tag\((.*)\)", re.IGNORECASE)
MOST_SUBJECTS = 4096


class BadTemplate(ValueError):
    """A template that cannot be filled in for this user."""


class Names(msgspec.Struct, frozen=True):
    """What the placeholders stand for."""

    user_name: str
    user_key: str
    account_name: str
    account_key: str
    user_tags: tuple[str, ...] = ()
    account_tags: tuple[str, ...] = ()

    def values(self, operation: str) -> list[str]:
        """Return what an operation stands for, several for a tag, none for one that is not set."""
        named = {
            "name()": self.user_name,
            "subject()": self.user_key,
            "account-name()": self.account_name,
            "account-subject()": self.account_key,
        }
        if operation.lower() in named:
            return [named[operation.lower()]]
        tag = _TAG.fullmatch(operation)
        if tag is None:
            raise BadTemplate(f"unknown template operation {operation!r}")
        prefix = f"{tag[2].lower()}:"
        tags = self.account_tags if tag[1] else self.user_tags
        return [text.removeprefix(prefix) for text in tags if text.startswith(prefix)]


def filled(granted: dict[str, Any], names: Names) -> dict[str, Any]:
    """Return what a scoped key grants with every subject filled in; raises ``BadTemplate``.

    What cannot be filled in is not allowed; where it would be denied, the user is refused.
    """
    made = dict(granted)
    for direction in ("pub", "sub"):
        lists = granted.get(direction) or {}
        allow = lists.get("allow") or []
        deny = list(_subjects(lists.get("deny") or [], names, strict=True))
        allowed = list(_subjects(allow, names, strict=False))
        if allow and not allowed:
            deny.append(">")  # an empty list would allow everything
        if allowed or deny:
            lists = {"allow": allowed, "deny": deny}
            made[direction] = {name: listed for name, listed in lists.items() if listed}
    return made


def _subjects(templates: Iterable[str], names: Names, *, strict: bool) -> list[str]:
    made: list[str] = []
    for template in templates:
        for subject in _filled(template, names):
            if is_pattern(subject.partition(" ")[0]):
                made.append(subject)
            elif strict:
                raise BadTemplate(f"{template!r} gives no subject")
            if len(made) > MOST_SUBJECTS:
                raise BadTemplate(f"templates give more than {MOST_SUBJECTS} subjects")
        if strict and _PLACEHOLDER.search(template) and not list(_filled(template, names)):
            raise BadTemplate(f"{template!r} gives no subject")
    return made


def _filled(template: str, names: Names) -> Iterable[str]:
    found = list(dict.fromkeys(_PLACEHOLDER.findall(template)))
    values = [names.values(text[2:-2].strip()) for text in found]
    for chosen in product(*values):
        subject = template
        for text, value in zip(found, chosen, strict=True):
            subject = subject.replace(text, value)
        yield subject
