"""BackingStream: the stream that a bucket or an object store is, by the name that people use."""

import re
from typing import Any

import click

from millstream.client.errors import ClientError
from millstream.client.jetstream.api import NO_STREAM, JetStreamApi, JetStreamRefused

_NAME = re.compile(r"[a-zA-Z0-9_-]+")


class BackingStream:
    """A stream named ``prefix`` and the user's name; ``noun`` and ``command`` say what it is."""

    def __init__(self, js: JetStreamApi, name: str, prefix: str, noun: str, command: str) -> None:
        if not _NAME.fullmatch(name):
            raise click.UsageError(
                f"{name!r} is not a name for {noun}: use letters, digits, - and _"
            )
        self.stream = prefix + name
        self._js = js
        self._name = name
        self._prefix = prefix
        self._noun = noun
        self._command = command

    def info(self) -> dict[str, Any]:
        """Return the stream's info; where it is not there, the error names a similar one."""
        try:
            return self._js.ask(f"STREAM.INFO.{self.stream}")
        except JetStreamRefused as error:
            if error.err_code == NO_STREAM:
                raise self.absent() from None
            raise

    def absent(self) -> ClientError:
        """Return the error for a name that is not there; it names a similar one."""
        from millstream.cli.shown.near import hint

        names = self._js.stream_names()
        known = [each.removeprefix(self._prefix) for each in names if each.startswith(self._prefix)]
        also = hint(self._name, known) or f"; `millstream {self._command} {self._name}` creates it"
        what = self._noun.partition(" ")[2]
        return ClientError(f"there is no {what} named {self._name!r}{also}")
