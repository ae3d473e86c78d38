"""Announcements: what a link was told, and the lines that tell it more."""

from millstream.accounts.permissions import Rule
from millstream.accounts.rights import text_of
from millstream.links.demand import LOOP_PREFIX, LinkKind, Wish
from millstream.links.narrowing import narrowed


class Announcements:
    """Interest as a link knows it: RS+ and RS- on routes, LS+ and LS- on leafnodes."""

    def __init__(self, kind: LinkKind) -> None:
        self._is_route = kind is LinkKind.ROUTE
        self._told: dict[tuple[str, Wish], int] = {}

    def __len__(self) -> int:
        return len(self._told)

    def news(self, account: str, wish: Wish, count: int, rule: Rule) -> bytes:
        """Return the line that tells how many want it now, nothing where that is no news."""
        before = self._told.get((account, wish), 0)
        if count == before or not _may_ask(wish, rule):
            return b""
        if count:
            self._told[account, wish] = count
        else:
            del self._told[account, wish]
        if not wish[1] and bool(before) == bool(count):
            return b""
        return self.line(account, wish, count)

    def line(self, account: str, wish: Wish, count: int) -> bytes:
        """Return the line for a wish, or for its end."""
        subject, queue = wish
        words = [b"RS" if self._is_route else b"LS"]
        words[0] += b"+" if count else b"-"
        if self._is_route:
            words.append(account.encode())
        words.append(subject)
        if queue:
            words.append(queue)
            if count:
                words.append(b"%d" % count)
        return b" ".join(words) + b"\r\n"


def _may_ask(wish: Wish, rule: Rule) -> bool:
    if wish[0].startswith(LOOP_PREFIX):
        return True
    subject = text_of(wish[0])
    return not rule.denies(subject, text_of(wish[1])) and bool(narrowed(subject, rule))
