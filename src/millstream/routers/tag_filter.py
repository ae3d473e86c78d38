"""TagFilter: which tags a selector takes; a record without a tag is never taken."""

from collections.abc import Sequence

import msgspec

from millstream.errors import BadRequest


class TagFilter(msgspec.Struct, frozen=True):
    """One tag (``Eq``), or every tag that begins in the same way (``Glob``, ending in ``*``)."""

    op: str
    value: str

    @classmethod
    def read(cls, wish: str | Sequence[str]) -> "TagFilter":
        """Return what a client wrote; a bare string that ends in ``*`` is a ``Glob``."""
        if isinstance(wish, str):
            wish = ("tag", "Glob" if wish.endswith("*") else "Eq", wish)
        if len(wish) != 3 or wish[0] != "tag" or wish[1] not in ("Eq", "Glob"):
            raise BadRequest('a selector is a tag, or ["tag", "Eq" | "Glob", value]')
        if wish[1] == "Glob" and not wish[2].endswith("*"):
            raise BadRequest("a Glob ends in *")
        return cls(wish[1], wish[2])

    def takes(self, tag: bytes) -> bool:
        """Say whether a record with this tag is taken."""
        if not tag:
            return False
        wanted = self.value.encode()
        return tag.startswith(wanted[:-1]) if self.op == "Glob" else tag == wanted

    def shown(self) -> list[str]:
        """Return the selector in its full form."""
        return ["tag", self.op, self.value]
