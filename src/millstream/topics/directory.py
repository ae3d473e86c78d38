"""TopicDirectory: topics by name, for those who may know of them."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from millstream.accounts.account import GLOBAL_ACCOUNT
from millstream.errors import Forbidden, Unauthorized
from millstream.http.request import Caller, Request
from millstream.streams.name_list import closest
from millstream.topics.errors import TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.routers.router import Router
    from millstream.streams.catalog import Catalog
    from millstream.streams.config.config import StreamConfig
    from millstream.streams.stream import Stream


SHORTEST_NEAR = 4  # short names are near each other by chance, and numbered ones on purpose


class TopicDirectory:
    """The catalog as a caller sees it: its account's streams that its key may touch."""

    def __init__(self, catalog: "Catalog") -> None:
        self._catalog = catalog
        self._elsewhere: WeakValueDictionary[str, Stream] = WeakValueDictionary()

    def find(self, name: str, caller: Caller) -> "Stream":
        """Return the topic's stream; raises with the closest name that the caller may see."""
        check_name(name, caller)
        found = self.find_or_none(name, caller)
        if found is None:
            raise self.absent(name, caller)
        return found

    def find_or_none(self, name: str, caller: Caller) -> "Stream | None":
        """Return the topic's stream if there is one."""
        found = self._catalog.find(name, caller.account)
        if found is not None and caller.account != GLOBAL_ACCOUNT:
            self._elsewhere[name] = found
        return found

    def find_for_anyone(self, name: str) -> "Stream | None":
        """Return the topic that a request means of which nobody knows yet who asks.

        Of another account's topics that is the one of this name that was asked for last.
        """
        return self._catalog.find(name) or self._elsewhere.get(name)

    def is_current(self, stream: "Stream") -> bool:
        """Say whether a stream still is the one of its name."""
        return self._catalog.find(stream.name, stream.account) is stream

    def visible(self, caller: Caller) -> "Iterator[Stream]":
        """Return the topics that the caller may see, by name."""
        return (s for s in self.listed(caller) if s is not None)

    def listed(
        self, caller: Caller, after: str | None = None, prefix: str = ""
    ) -> "Iterator[Stream | None]":
        """Go through the topics behind a name that begin so, None for one not to be seen.

        A key that is bound to prefixes meets no others, however many there are.
        """
        for start in _starts(caller.prefixes, prefix):
            for stream in self._catalog.table.after(caller.account, after, start):
                yield stream if caller.may_touch(stream.name) else None

    def one_edit_away(self, name: str, caller: Caller) -> str | None:
        """Return a topic that the caller may see and whose name differs by one character."""
        for known in self._catalog.table.near(name, caller.account):
            if known != name and caller.may_touch(known) and is_one_edit(name, known):
                return known
        return None

    def absent(self, name: str, caller: Caller) -> TopicNotFound:
        """Return that there is no such topic, with the closest name that the caller may read."""
        reader = caller if "read" in caller.scopes else caller.asking_for("read", name)
        if "read" not in reader.scopes:
            return TopicNotFound(name)
        near = self._catalog.table.near(name, reader.account)
        return TopicNotFound(name, closest(name, [n for n in near if reader.may_touch(n)], 0.7))


def is_one_edit(one: str, other: str) -> bool:
    """Say whether one character more, less, other or exchanged makes one name of the other."""
    if abs(len(one) - len(other)) > 1 or min(len(one), len(other)) < SHORTEST_NEAR:
        return False
    start = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    if start is None:
        return len(one) != len(other) and not max(one, other, key=len)[-1].isdigit()
    if len(one) == len(other):
        swapped = one[start : start + 2] == other[start : start + 2][::-1]
        rest = start + 2 if swapped and one[start + 2 :] == other[start + 2 :] else start + 1
        numbered = one[start].isdigit() and other[start].isdigit()
        return one[rest:] == other[rest:] and not numbered
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    return longer[start + 1 :] == shorter[start:] and not longer[start].isdigit()


def _starts(prefixes: tuple[str, ...], prefix: str) -> list[str]:
    """Return beginnings of names, in order and none within another: what both sides allow."""
    if not prefixes:
        return [prefix]
    both = sorted(max(one, prefix, key=len) for one in prefixes if _agree(one, prefix))
    return [one for at, one in enumerate(both) if not one.startswith(tuple(both[:at]))]


def _agree(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def check_name(name: str, caller: Caller) -> None:
    """Refuse a name outside the caller's allow-list, before anything is said about it."""
    if caller.revoked:
        raise Unauthorized("the credential was revoked")
    if not caller.may_touch(name):
        raise Forbidden(f"this key may not touch {name}", {"topic": name})


def check_capture(config: "StreamConfig", caller: Caller, kept: Iterable[str] = ()) -> None:
    """Refuse to take what the caller may not hear; what the topic takes already stays."""
    known = frozenset(kept)
    for subject in config.subjects:
        if subject not in known and not caller.may_capture(subject):
            raise Forbidden(f"this key may not take the subject {subject}", {"subject": subject})


def check_letters(
    wish: Mapping[str, Any], name: str, caller: Caller, directory: TopicDirectory
) -> None:
    """Refuse to copy jobs to where the caller may not write, or out of what it may not read.

    What the topic's configuration says already stays.
    """
    letters = wish.get("dead_letter")
    if not isinstance(letters, str):
        return
    check_name(letters, caller)
    known = directory.find_or_none(name, caller)
    if known is not None and known.config.to_topic()["dead_letter"] == letters:
        return
    check_name(letters, caller.asking_for("write", letters))
    check_name(name, caller.asking_for("read", name))


def may_see(router: "Router", caller: Caller) -> bool:
    """Say whether the caller may know of a router: of its name and of both its topics."""
    one = router.definition
    named = not caller.prefixes or one.name.startswith(caller.prefixes)
    return named and caller.may_touch(one.source) and caller.may_touch(one.dest)


def topic_of(request: Request) -> str:
    """Return the topic that the path names."""
    return request.params["topic"]
