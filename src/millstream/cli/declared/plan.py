"""Plan: what must be made, changed and removed so that a server is as a file says."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from millstream.cli.shown.differences import differences

Json = dict[str, Any]
ORDER = ("streams", "kv", "topics", "queues", "consumers", "routers", "users")
SINGULAR = {
    "streams": "stream",
    "kv": "bucket",
    "topics": "topic",
    "queues": "queue",
    "consumers": "consumer",
    "routers": "router",
    "users": "user",
}


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One thing to do: ``verb`` is create, change or remove."""

    verb: str
    section: str
    name: str
    before: Json
    after: Json

    def text(self) -> str:
        """Return the step as people read it, with its difference."""
        color = {"create": "green", "change": "yellow", "remove": "red"}[self.verb]
        head = click.style(f"{self.verb} {SINGULAR[self.section]} {self.name}", fg=color)
        if self.verb != "change":
            return head
        shown = {field: self.before.get(field) for field in self.after}
        return f"{head}\n{differences(shown, self.after, '    ')}"

    def shown(self) -> Json:
        """Return the step for JSON."""
        fields = {"verb": self.verb, "kind": SINGULAR[self.section], "name": self.name}
        return {**fields, "settings": self.after}


def planned(
    wanted: dict[str, dict[str, Json]], live: dict[str, dict[str, Json]], prune: bool
) -> list[PlanStep]:
    """Return the steps in the order that works: what others need comes first, and goes last."""
    makes = [step for section in ORDER if section in wanted for step in
             _section(section, wanted[section], live.get(section, {}))]  # fmt: skip
    if not prune:
        return makes
    removes = [
        PlanStep("remove", section, name, known, {})
        for section in reversed(ORDER)
        if section in wanted
        for name, known in sorted(live.get(section, {}).items())
        if name not in wanted[section]
    ]
    gone = {step.name for step in removes if step.section == "streams"}
    kept = [
        step
        for step in removes
        if step.section != "consumers" or step.name.partition("/")[0] not in gone
    ]
    return makes + kept


def _section(section: str, wanted: dict[str, Json], live: dict[str, Json]) -> Iterator[PlanStep]:
    for name, fields in wanted.items():
        known = live.get(name)
        if known is None:
            yield PlanStep("create", section, name, {}, fields)
        elif changed := {field: v for field, v in fields.items() if not same(known.get(field), v)}:
            yield PlanStep("change", section, name, known, changed)


def same(live: object, wanted: object) -> bool:
    """Whether two values mean the same: what is empty is left out by servers."""
    if isinstance(live, dict) and isinstance(wanted, dict):
        return all(same(live.get(key), value) for key, value in wanted.items())
    if isinstance(live, list) and isinstance(wanted, list):
        return len(live) == len(wanted) and all(map(same, live, wanted))
    return live == wanted or (not live and not wanted)
