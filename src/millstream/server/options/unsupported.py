"""What the options can say and this server does not do, told before anything starts."""

from collections.abc import Iterator

from millstream.server.options.options import Options


def without_effect(options: Options) -> list[str]:
    """Return the settings that are left out, in words."""
    return list(_untraced(options))


def _untraced(options: Options) -> Iterator[str]:
    if options.log.trace_verbose:
        yield "'-VV' is taken as '-V': what the server tells itself is not traced"
