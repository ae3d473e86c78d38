"""An account's new limits count for streams that are there already."""

from millstream.accounts.account import Account, StreamLimits
from millstream.nats.accounts.account_quotas import AccountQuotas
from millstream.nats.accounts.accounts import Accounts
from millstream.streams.account_quota import AccountRoom


def test_a_room_follows_the_limits_of_its_account() -> None:
    accounts = Accounts([Account("A", jetstream=True)])
    quotas = AccountQuotas(accounts)
    room = AccountRoom(lambda: quotas.most_bytes("A", "file"), lambda: 90, lambda: 0.0)
    quotas.watch(room.look)
    assert not room.is_bounded
    assert room.takes(1000)
    accounts.apply([Account("A", jetstream=True, stream_limits=StreamLimits(max_storage=100))])
    assert room.is_bounded
    assert room.takes(10)
    assert not room.takes(11)
    accounts.apply([])  # whose streams stay, and nobody comes in
    assert not room.is_bounded
