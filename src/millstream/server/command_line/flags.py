"""nats-server's command line: what was typed, by name, following the rules of Go's flags.

One dash or two, ``-f value`` or ``-f=value``; a switch takes a value only behind ``=``; the first
word that is no flag ends them.
"""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from millstream.server.options.config_error import ConfigError

Given: TypeAlias = str | int | bool

TEXTS = {
    "server_name": ("n", "name", "server_name"),
    "host": ("a", "addr", "net"),
    "client_advertise": ("client_advertise",),
    "user": ("user",),
    "pass": ("pass",),
    "auth": ("auth",),
    "config": ("c", "config"),
    "signal": ("sl", "signal"),
    "pid": ("P", "pid"),
    "ports_file_dir": ("ports_file_dir",),
    "log": ("l", "log"),
    "remote_syslog": ("r", "remote_syslog"),
    "routes": ("routes",),
    "cluster": ("cluster", "cluster_listen"),
    "cluster_advertise": ("cluster_advertise",),
    "cluster_name": ("cluster_name",),
    "tlscert": ("tlscert",),
    "tlskey": ("tlskey",),
    "tlscacert": ("tlscacert",),
    "store_dir": ("sd", "store_dir"),
}
NUMBERS = {
    "port": ("p", "port"),
    "http_port": ("m", "http_port"),
    "https_port": ("ms", "https_port"),
    "log_size_limit": ("log_size_limit",),
    "profile": ("profile",),
    "connect_retries": ("connect_retries",),
    "max_traced_msg_len": ("max_traced_msg_len",),
}
SWITCHES = {
    "help": ("h", "help"),
    "version": ("v", "version"),
    "help_tls": ("help_tls",),
    "check": ("t",),
    "debug": ("D", "debug"),
    "trace": ("V", "trace"),
    "debug_trace": ("DV",),
    "trace_verbose": ("VV",),
    "debug_trace_verbose": ("DVV",),
    "logtime": ("T", "logtime"),
    "logtime_utc": ("logtime_utc",),
    "syslog": ("s", "syslog"),
    "no_advertise": ("no_advertise",),
    "tls": ("tls",),
    "tlsverify": ("tlsverify",),
    "jetstream": ("js", "jetstream"),
}
_TRUE = {"1", "t", "T", "true", "TRUE", "True"}
_FALSE = {"0", "f", "F", "false", "FALSE", "False"}


class BadFlag(ConfigError):
    """A command line that cannot be followed."""


def _by_spelling(table: dict[str, tuple[str, ...]]) -> dict[str, str]:
    return {spelling: name for name, spellings in table.items() for spelling in spellings}


_TEXTS, _NUMBERS, _SWITCHES = (_by_spelling(table) for table in (TEXTS, NUMBERS, SWITCHES))


class Flags(msgspec.Struct, frozen=True):
    """What was given, by name; a flag that was not given is absent."""

    given: dict[str, Given] = msgspec.field(default_factory=dict)

    def text(self, name: str) -> str:
        """Return the text of a flag, or nothing."""
        return str(self.given.get(name, ""))

    def number(self, name: str) -> int:
        """Return the number of a flag, or zero."""
        return int(self.given.get(name, 0))

    def on(self, name: str) -> bool:
        """Say whether a switch was given and not switched off."""
        return bool(self.given.get(name, False))


def parse_flags(arguments: Sequence[str]) -> Flags:
    """Read a command line; raises ``BadFlag``."""
    words = list(arguments)
    given: dict[str, Given] = {}
    while words and words[0].startswith("-") and words[0] not in ("-", "--"):
        name, value = _take(words)
        given[name] = value
    if words[:1] == ["--"]:
        words.pop(0)
    for word in words:
        if word.lower() not in ("version", "help"):
            raise BadFlag(f'unrecognized command: "{word}"')
        given[word.lower()] = True
    return Flags(given)


def _take(words: list[str]) -> tuple[str, Given]:
    word = words.pop(0)
    spelling = word[2:] if word.startswith("--") else word[1:]
    spelling, equals, value = spelling.partition("=")
    if not spelling or spelling.startswith("-"):
        raise BadFlag(f"bad flag syntax: {word}")
    if spelling in _SWITCHES:
        return _SWITCHES[spelling], _switch(spelling, value) if equals else True
    if spelling not in _TEXTS and spelling not in _NUMBERS:
        raise BadFlag(f"flag provided but not defined: -{spelling}")
    if not equals:
        if not words:
            raise BadFlag(f"flag needs an argument: -{spelling}")
        value = words.pop(0)
    if spelling in _TEXTS:
        return _TEXTS[spelling], value
    return _NUMBERS[spelling], _number(spelling, value)


def _switch(spelling: str, value: str) -> bool:
    if value not in _TRUE | _FALSE:
        raise BadFlag(f'invalid boolean value "{value}" for -{spelling}: use true or false')
    return value in _TRUE


def _number(spelling: str, value: str) -> int:
    try:
        return int(value, 0)
    except ValueError:
        raise BadFlag(f'invalid value "{value}" for flag -{spelling}: not a number') from None
