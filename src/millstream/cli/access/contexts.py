"""Contexts: servers by name, each with what it takes to connect, in one file of the user's own."""

import json
import os
from pathlib import Path
from typing import Any

import click

from millstream.cli.shown.near import hint

FIELDS = (
    *("description", "url", "user", "password", "creds", "nkey"),
    *("tls_ca", "tls_cert", "tls_key", "http_url", "token"),
)
SECRETS = ("password", "token")


class Contexts:
    """The file of contexts; whoever may read it may connect, so only its owner may."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or _usual_path()

    def read(self) -> tuple[str | None, dict[str, dict[str, str]]]:
        """Return the name of the selected one, and all of them by name."""
        try:
            kept = json.loads(self.path.read_text())
        except FileNotFoundError:
            return None, {}
        except (OSError, ValueError) as error:
            raise click.ClickException(f"{self.path} cannot be read: {error}") from error
        return kept.get("selected"), kept.get("contexts", {})

    def write(self, selected: str | None, contexts: dict[str, dict[str, str]]) -> None:
        """Write the file anew, whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = self.path.with_name(self.path.name + ".tmp")
        partial.touch(mode=0o600)
        partial.write_text(
            json.dumps({"selected": selected, "contexts": contexts}, indent=2) + "\n"
        )
        partial.replace(self.path)

    def find(self, name: str | None) -> dict[str, str]:
        """Return a context by its name, or the selected one; nothing where none is selected."""
        if name is None and not self.path.exists():
            return {}
        selected, contexts = self.read()
        wanted = name or selected
        if wanted is None:
            return {}
        if wanted not in contexts:
            raise click.UsageError(
                f"there is no context named {wanted!r}{hint(wanted, contexts)}; "
                "`millstream context ls` lists them"
            )
        return contexts[wanted]


def shown(context: dict[str, str]) -> dict[str, Any]:
    """Return a context without its secrets."""
    return {name: "***" if name in SECRETS else value for name, value in context.items()}


def _usual_path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base) / "millstream" / "contexts.json"
