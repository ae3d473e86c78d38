"""HeldWishes: what the other end of a link wants, as the hub matches it."""

from collections import Counter
from typing import TYPE_CHECKING

from millstream.accounts.permissions import Rule
from millstream.accounts.rights import text_of
from millstream.kernel._hub import Hub
from millstream.links.demand import LOOP_PREFIX, Wish
from millstream.links.narrowing import narrowed

if TYPE_CHECKING:
    from millstream.nats.accounts.accounts import Space


class HeldWishes:
    """Wishes by (account, subject, queue); where only some subjects may pass, as what is left."""

    def __init__(self, hub: Hub, cid: int) -> None:
        self._hub = hub
        self._cid = cid
        self._asked: dict[tuple[bytes, Wish], tuple[bytes, ...]] = {}
        self._held: Counter[tuple[bytes, bytes, bytes]] = Counter()

    def __len__(self) -> int:
        return len(self._asked)

    def __contains__(self, key: tuple[bytes, Wish]) -> bool:
        return key in self._asked

    def accounts(self) -> set[bytes]:
        """Return the accounts in which something is wanted."""
        return {account for account, _ in self._asked}

    def take(
        self,
        space: "Space",
        account: bytes,
        wish: Wish,
        weight: int,
        rule: Rule,
        origin: bytes,
    ) -> bool:
        """Register a wish, or its new weight; False when the subject is illegal."""
        subject, queue = wish
        if subject.startswith(LOOP_PREFIX):
            rule = Rule()
        patterns = tuple(_bytes(pattern) for pattern in narrowed(text_of(subject), rule))
        deny = tuple(_bytes(pattern) for pattern in rule.filters())
        is_new = (account, wish) not in self._asked
        for pattern in patterns:
            if not self._hub.wishes.wish(
                self._cid, account, space.interest, pattern, queue, weight, deny, origin
            ):
                return False
            self._held[account, pattern, queue] += is_new
        self._asked[account, wish] = patterns
        if is_new:
            space.listened(self._cid, _sid(wish), subject)
        return True

    def drop(self, space: "Space", account: bytes, wish: Wish) -> None:
        """Forget a wish; one that is not there is fine."""
        for pattern in self._asked.pop((account, wish), ()):
            key = (account, pattern, wish[1])
            self._held[key] -= 1
            if self._held[key] <= 0:
                del self._held[key]
                self._hub.wishes.unwish(self._cid, *key)
        space.unlistened(self._cid, _sid(wish))


def _sid(wish: Wish) -> bytes:
    return b" ".join(wish)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
