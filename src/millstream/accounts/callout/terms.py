"""CalloutTerms: which account's service says who clients are, and about whom it is asked."""

from typing import TYPE_CHECKING, Any

import msgspec

from millstream.accounts.account import GLOBAL_ACCOUNT

if TYPE_CHECKING:
    from millstream.accounts.jwt import JwtClaims

ANY_ACCOUNT = "*"


class CalloutTerms(msgspec.Struct, frozen=True):
    """Which account's service decides, and about whom.

    ``auth_users`` are the service itself: nobody is asked about them. ``issuer`` signs the answers.
    """

    issuer: str
    account: str = GLOBAL_ACCOUNT
    auth_users: tuple[str, ...] = ()
    xkey: str = ""
    allowed_accounts: tuple[str, ...] = ()

    def delegates(self, user: str, account: str) -> bool:
        """Whether the service decides about a user that the file itself puts into ``account``."""
        if account != GLOBAL_ACCOUNT and self.allowed_accounts:
            return account in self.allowed_accounts and user not in self.auth_users
        return user not in self.auth_users

    def allows(self, account: str) -> bool:
        """Whether an operator's account may put users into another one."""
        allowed = self.allowed_accounts
        return account == self.account or allowed == (ANY_ACCOUNT,) or account in allowed


def terms_of_claims(claims: "JwtClaims") -> CalloutTerms | None:
    """Return what an account's JWT says about its callout, None when it has none."""
    said: dict[str, Any] = claims.nats.get("authorization") or {}
    if not said.get("auth_users"):
        return None
    return CalloutTerms(
        claims.subject,
        claims.subject,
        tuple(said["auth_users"]),
        said.get("xkey") or "",
        tuple(said.get("allowed_accounts") or ()),
    )
