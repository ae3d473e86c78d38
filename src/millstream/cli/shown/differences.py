"""What changes between two configurations, line by line."""

import json
from typing import Any

import click

Json = dict[str, Any]


def differences(before: Json, after: Json, indent: str = "  ") -> str:
    """Return a line for each field that differs: - as it is, + as it shall be."""
    lines = []
    for field in sorted(before.keys() | after.keys()):
        old, new = before.get(field), after.get(field)
        if old == new or (not old and not new):
            continue
        if old is not None:
            lines.append(click.style(f"{indent}- {field}: {_text(old)}", fg="red"))
        if new is not None:
            lines.append(click.style(f"{indent}+ {field}: {_text(new)}", fg="green"))
    return "\n".join(lines)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
