"""Descriptors: how many connections and files the process may have open at once."""

import resource
from contextlib import suppress


def take_all() -> None:
    """Raise the limit to what the machine grants, as Go does for nats-server by itself.

    A shell's usual 1024 is meant for programs that use ``select``; here it would be about as many
    clients. A machine that does not let us leaves it as it is.
    """
    _, granted = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (granted, granted))
