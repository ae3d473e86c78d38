"""ExternalStreams: which stream a mirror or source of another account means.

``external`` names subjects, as they are imported: the API of the origin's account under ``api``,
what its consumers deliver under ``deliver``. Records are then taken from stream to stream; the
exports and imports decide whether that may be.
"""

from collections.abc import Iterator

from millstream.accounts.account import Import, goes_round
from millstream.nats.accounts.accounts import Accounts, Space
from millstream.subjects.subject import is_subset

_CREATE = "$JS.API.CONSUMER.CREATE."
_MOST_ACCOUNTS = 8  # that a request may pass through


class ExternalStreams:
    """Looks up streams along the imports that are in force."""

    def __init__(self, accounts: Accounts, domain: str = "") -> None:
        self._accounts = accounts
        self._domain = domain

    def reach(self, account: str, api: str, deliver: str, stream: str) -> tuple[str, str] | None:
        """Return (account, stream) of an origin, None when no import leads there."""
        api, deliver = api.removesuffix("."), deliver.removesuffix(".")
        if self._domain and api == f"$JS.{self._domain}.API":
            return account, stream
        space = self._accounts.get(account)
        if space is None or not self._is_delivered(space, f"{deliver or '$JS'}.M.x"):
            return None
        return self._asked(space, f"{api}.CONSUMER.CREATE.{stream}", _MOST_ACCOUNTS)

    def _asked(self, space: Space, subject: str, further: int) -> tuple[str, str] | None:
        """Follow a request for a consumer to the account that would answer it."""
        for item, owner in self._imports(space, service=True):
            if not is_subset(subject, item.local):
                continue
            outward = item.outward()
            asked = subject if outward is None else outward.apply(subject)
            if asked.startswith(_CREATE):
                return owner.name, asked[len(_CREATE) :]
            if further:
                return self._asked(owner, asked, further - 1)
        return None

    def _is_delivered(self, space: Space, subject: str) -> bool:
        """Whether what a consumer delivers there would come in under the same name."""
        return any(
            item.inward() is None and is_subset(subject, item.local)
            for item, _ in self._imports(space, service=False)
        )

    def _imports(self, space: Space, *, service: bool) -> Iterator[tuple[Import, Space]]:
        """Return what an account takes from others, as far as they let it."""
        for item in space.account.imports:
            owner = self._accounts.get(item.account) if item.service == service else None
            if owner is None or owner.account.offer(item, space.name) is None:
                continue
            if not goes_round(item, space.name, self._accounts.configured):
                yield item, owner
