"""Patterns in plain Python: every pattern is compared with every other, without end."""

from millstream.kernel.reference.interest import collide, covers


class Patterns:
    """The specification of what collides and what covers; ``steps`` are not counted."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._known: list[tuple[bytes, int]] = []

    def allow(self, steps: int) -> None:
        """Let the walks from here on look at so many nodes."""
        self.steps = steps

    def add(self, pattern: bytes, owner: int) -> None:
        """Add a pattern of an owner; ValueError when it is no legal subject."""
        tokens = pattern.split(b".")
        if b"" in tokens or b">" in tokens[:-1]:
            raise ValueError(f"not a subject: {pattern!r}")
        self._known.append((pattern, owner))

    def first(self, patterns: list[bytes], covering: bool) -> int:
        """Add patterns, each owned by its place; return the first that another disturbs, or -1."""
        for at, pattern in enumerate(patterns):
            self.add(pattern, at)
        disturbed = self.is_covered if covering else self.collides
        return next((at for at, one in enumerate(patterns) if disturbed(one, at)), -1)

    def remove(self, pattern: bytes, owner: int) -> None:
        """Take a pattern away again that the owner has added."""
        if (pattern, owner) not in self._known:
            raise KeyError(pattern)
        self._known.remove((pattern, owner))

    def collides(self, pattern: bytes, besides: int) -> bool:
        """Tell whether a literal could match both this and a pattern of another owner."""
        tokens = pattern.split(b".")
        return any(collide(tokens, other) for other in self._others(besides))

    def is_covered(self, pattern: bytes, besides: int) -> bool:
        """Tell whether a pattern of another owner matches all that this one matches."""
        tokens = pattern.split(b".")
        return any(covers(other, tokens) for other in self._others(besides))

    def _others(self, besides: int) -> list[list[bytes]]:
        return [pattern.split(b".") for pattern, owner in self._known if owner != besides]
