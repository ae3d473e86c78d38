"""AccountChanges: other users, accounts and limits while the server runs."""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from millstream.accounts.account import Account
from millstream.nats.sessions import Sessions
from millstream.server.access.identity import accounts_of, identities_of, tell_unheeded
from millstream.server.options.options import Options

if TYPE_CHECKING:
    from millstream.accounts.jwt import JwtClaims, Trust

log = logging.getLogger(__name__)


class AccountChanges:
    """Puts accounts in force; each of ``renewals`` follows what the accounts have become."""

    def __init__(
        self, options: Options, sessions: Sessions, renewals: Sequence[Callable[[], object]]
    ) -> None:
        self._options = options
        self._sessions = sessions
        self._reception = sessions.reception
        self._renewals = renewals

    def set_credentials(self, options: Options) -> None:
        """Believe other users; close whoever would not be admitted as before."""
        known = identities_of(options)
        self._options = options
        self._reception.apply(known.credentials, known.by_kind)
        self._set_accounts(known.accounts)

    @property
    def _trust(self) -> "Trust":
        trust = self._reception.credentials.trust
        if trust is None:
            from millstream.accounts.jwt import Refused

            raise Refused("accounts are not given by JWTs here")
        return trust

    def checked(self, token: str) -> "JwtClaims":
        """Return the claims of a JWT that an operator of ours signed; raises ``Refused``."""
        return self._trust.checked(token)

    def update(self, token: str) -> None:
        """Take over an account's newer JWT; raises ``Refused``."""
        trust = self._trust
        tell_unheeded(trust.add_account(token))
        self._set_accounts(accounts_of(self._options, trust))

    def remove(self, accounts: Sequence[str]) -> None:
        """Let nobody into these accounts any more; what they store stays."""
        trust = self._trust
        for public in accounts:
            trust.remove_account(public)
        self._set_accounts(accounts_of(self._options, trust))

    def deletions(self, token: str) -> list[str]:
        """Return the accounts that an operator's request names; raises ``Refused``."""
        return self._trust.deletions(token)

    def _set_accounts(self, accounts: Sequence[Account]) -> None:
        self._reception.accounts.apply(accounts)
        for renew in self._renewals:
            renew()
        dropped = self._sessions.apply()
        log.info("Reloaded: credentials, clients dropped: %d", dropped)
