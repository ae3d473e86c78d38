"""Masking: rules that cover up parts of messages for those who look at them."""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from millstream.http.request import Caller
from millstream.subjects.matcher import matcher

MOST_RULES = 1000
MOST_JSON = 1024 * 1024  # a larger payload is covered whole


class MaskRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to cover: JSON ``paths``, ``headers``, or without either the whole payload."""

    stream: str = "*"  # may hold ``*``
    subject: str = ">"
    paths: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    replace_with: str = "•••"
    unless_scope: str = "admin"  # who has it sees everything; "" covers for everybody


class BadRules(ValueError):
    """Rules that nobody can follow; the text names the cause."""


def read_rules(path: Path) -> tuple[MaskRule, ...]:
    """Read a file with a JSON list of rules."""
    try:
        rules = msgspec.json.decode(path.read_bytes(), type=list[MaskRule])
    except OSError as error:
        raise BadRules(f"{path} cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise BadRules(f"{path}: {error}") from None
    if len(rules) > MOST_RULES:
        raise BadRules(f"{path} has {len(rules)} rules: at most {MOST_RULES}")
    return tuple(rules)


class Masking:
    """Covers up what rules name in messages that are about to be shown."""

    def __init__(self, rules: tuple[MaskRule, ...] = ()) -> None:
        self._rules = [(rule, matcher([rule.subject])) for rule in rules]

    def __call__(self, caller: Caller, topic: str, messages: list[dict[str, Any]]) -> None:
        """Cover up in place what the caller must not see."""
        found = [
            (rule, match)
            for rule, match in self._rules
            if fnmatchcase(topic, rule.stream)
            and (not rule.unless_scope or rule.unless_scope not in caller.scopes)
        ]
        for message in messages if found else ():
            subject = message["subject"].encode()
            for rule, match in found:
                if match is None or match(subject):
                    _cover(message, rule)


def _cover(message: dict[str, Any], rule: MaskRule) -> None:
    message["masked"] = True
    hidden = {name.lower() for name in rule.headers}
    if hidden and "headers" in message:
        message["headers"] = [
            [name, rule.replace_with if name.lower() in hidden else value]
            for name, value in message["headers"]
        ]
    if rule.paths:
        _cover_paths(message, rule)
    elif not rule.headers:
        _cover_whole(message, rule)


def _cover_paths(message: dict[str, Any], rule: MaskRule) -> None:
    text = message.get("text")
    if text is None or message.get("cut") or len(text) > MOST_JSON:
        _cover_whole(message, rule)  # what cannot be taken apart is not shown either
        return
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        _cover_whole(message, rule)
        return
    for path in rule.paths:
        _replace(value, [step for step in path.removeprefix("$").split(".") if step], rule)
    message["text"] = msgspec.json.encode(value).decode()


def _replace(value: Any, steps: list[str], rule: MaskRule) -> None:
    """Replace what steps lead to; a list is gone through whole."""
    if isinstance(value, list):
        for each in value:
            _replace(each, steps, rule)
        return
    if not isinstance(value, dict) or not steps:
        return
    step, rest = steps[0].removesuffix("[*]"), steps[1:]
    for name in list(value) if step == "*" else [step] if step in value else []:
        if rest:
            _replace(value[name], rest, rule)
        else:
            value[name] = rule.replace_with


def _cover_whole(message: dict[str, Any], rule: MaskRule) -> None:
    message.pop("base64", None)
    message.pop("cut", None)
    message["text"] = rule.replace_with
