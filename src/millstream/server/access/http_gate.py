"""HttpGate: who may use the HTTP door, put together from options, key file and users."""

from collections.abc import Callable
from functools import partial

from millstream.accounts.account import GLOBAL_ACCOUNT
from millstream.accounts.api_keys import ApiKeyRing
from millstream.clock import Clock
from millstream.nats.accounts.accounts import Accounts
from millstream.nats.authenticator import Authenticator
from millstream.server.access.key_file import KeyFile, KeyWatch
from millstream.server.options.options import Options
from millstream.streams.catalog import Catalog
from millstream.topics.authorize import Authorizer, Users


class HttpGate:
    """The authorizer of the door, and what keeps it up to date."""

    def __init__(
        self,
        authorize: Authorizer,
        watch: KeyWatch | None,
        wake: Callable[[], None],
        keys: ApiKeyRing,
    ) -> None:
        self.authorize = authorize
        self.keys = keys
        self._watch = watch
        self._wake = wake

    def check(self) -> None:
        """Look for revoked credentials, and end what they opened; call it about once a second."""
        if self._watch is not None:
            self._watch.check()
        if self.authorize.renew():
            self._wake()


def gate_of(
    options: Options,
    reception: Authenticator,
    clock: Clock,
    catalog: Catalog | None,
    wake: Callable[[], None],
) -> HttpGate | None:
    """Return who may come in; None for a monitoring port as nats-server has it, which only tells.

    Raises ``ConfigError`` when the keys of the data directory cannot be read.
    """
    monitor = options.monitor
    if not (monitor.topics or monitor.keys):
        return None
    ring, watch = ApiKeyRing(monitor.keys), None
    if options.jetstream is not None:
        watch = KeyWatch(KeyFile(options.jetstream.directory), ring.replace, ring.open)
        watch.start()
    accounts = reception.accounts
    system = accounts.system
    users = Users(
        lambda: reception.credentials,
        partial(_subjects_of, reception),
        partial(_keeps_streams, accounts, catalog),
        system.name if system is not None else "",
    )
    authorize = Authorizer(
        ring,
        users,
        clock,
        probe_auth=monitor.probe_auth,
        max_inflight_per_key=monitor.caps.max_inflight_per_key,
    )
    return HttpGate(authorize, watch, wake, ring)


def _subjects_of(reception: Authenticator, account: str, name: str) -> tuple[str, ...] | None:
    return reception.subjects_of(account, name)


def _keeps_streams(accounts: Accounts, catalog: Catalog | None, account: str) -> bool:
    space = accounts.get(account)
    return (
        catalog is not None
        and space is not None
        and (space.account.jetstream or space.name == GLOBAL_ACCOUNT)
    )
