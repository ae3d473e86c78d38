"""What the options can say and this server cannot do, told before anything starts.

Guards and promises that cannot be kept are refused: leaving them out in silence would be worse
than not starting. What only tunes is named and left out.
"""

from collections.abc import Iterator

from millstream.server.options.auth_options import MemoryResolver
from millstream.server.options.options import Options
from millstream.server.options.serve_config import ConfigError


def refuse_missing(options: Options) -> None:
    """Raise ``ConfigError`` with everything that is asked for and not there."""
    missing = list(_missing(options))
    if missing:
        raise ConfigError("\n".join(f"not supported: {text}" for text in missing))


def _missing(options: Options) -> Iterator[str]:
    if options.trust.required and not isinstance(options.trust.resolver, MemoryResolver):
        yield "account resolvers other than MEMORY"


def without_effect(options: Options) -> list[str]:
    """Return the settings that are left out, in words."""
    return list(_untraced(options))


def _untraced(options: Options) -> Iterator[str]:
    if options.log.trace_verbose:
        yield "'-VV' is taken as '-V': what the server tells itself is not traced"
