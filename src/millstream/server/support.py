"""What the options can say and this server cannot do: refused by name before anything starts.

Leaving out in silence what was asked for, a guard above all, would be worse than not starting.
"""

from collections.abc import Iterator

from millstream.server.auth_options import MemoryResolver
from millstream.server.config import ConfigError
from millstream.server.options import Options


def refuse_missing(options: Options) -> None:
    """Raise ``ConfigError`` with everything that is asked for and not there."""
    missing = list(_missing(options))
    if missing:
        raise ConfigError("\n".join(f"not supported: {text}" for text in missing))


def _missing(options: Options) -> Iterator[str]:
    if options.monitor.tls_port is not None:
        yield "monitoring over HTTPS: use http"
    if options.mappings or any(account.mappings for account in options.accounts):
        yield "subject mappings"
    if options.trust.operators and not isinstance(options.trust.resolver, MemoryResolver):
        yield "account resolvers other than MEMORY"
    if options.trust.trusted_keys:
        yield "trusted_keys: give the operator's JWT as operator"
