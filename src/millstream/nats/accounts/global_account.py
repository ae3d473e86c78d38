"""GlobalAccount: what is configured for the account of those who name none."""

import msgspec

from millstream.accounts.account import GLOBAL_ACCOUNT, Account
from millstream.nats.accounts.accounts import Space
from millstream.streams.catalog import Catalog


class GlobalAccount:
    """Says what the global account may do.

    Beside other accounts its NATS clients have no JetStream, as with nats-server. They keep it
    where the start found streams that take subjects: whoever stored records must reach them.
    """

    def __init__(self, space: Space, catalog: Catalog) -> None:
        self._space = space
        self._catalog = catalog
        self._has_kept = False

    def look(self) -> None:
        """Look at what the start has recovered."""
        streams = self._catalog.streams(GLOBAL_ACCOUNT)
        self._has_kept = any(stream.config.subjects for stream in streams)

    def __call__(self) -> Account:
        """Return what holds now."""
        found = self._space.account
        if self._has_kept and not found.jetstream:
            return msgspec.structs.replace(found, jetstream=True)
        return found
