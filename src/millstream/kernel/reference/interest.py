"""Interest in plain Python: every pattern is tried against the subject, nothing is cached."""


class Interest:
    """The specification of matching: patterns to handles."""

    def __init__(self) -> None:
        self._next = 1
        self._sinks: dict[int, tuple[list[bytes], bytes]] = {}

    def add_sink(
        self,
        pattern: bytes,
        sink: object,
        queue: bytes = b"",
        routed: bool = False,
        costly: bool = False,
    ) -> int:
        """Register a pattern; ValueError when it is no legal subject."""
        tokens = pattern.split(b".")
        if b"" in tokens or b">" in tokens[:-1]:
            raise ValueError(f"not a subject: {pattern!r}")
        handle = self._next
        self._next += 1
        self._sinks[handle] = (tokens, queue)
        return handle

    def add_sinks(self, patterns: list[bytes], sink: object) -> list[int]:
        """Register several patterns."""
        return [self.add_sink(pattern, sink) for pattern in patterns]

    def remove_sinks(self, handles: list[int]) -> None:
        """Forget several handles."""
        for handle in handles:
            self.remove_sink(handle)

    def remove_sink(self, handle: int) -> bool:
        """Forget a handle."""
        return self._sinks.pop(handle, None) is not None

    def match(self, subject: bytes) -> tuple[list[int], dict[bytes, list[int]]]:
        """Return the plain handles and the queue groups, merged by name, that match."""
        plain: list[int] = []
        groups: dict[bytes, list[int]] = {}
        for handle, (pattern, queue) in self._sinks.items():
            if not matches(pattern, subject.split(b".")):
                continue
            if queue:
                groups.setdefault(queue, []).append(handle)
            else:
                plain.append(handle)
        return plain, groups

    def reverse_match(self, pattern: bytes) -> list[tuple[bytes, bytes, int]]:
        """Return (subject, queue, handle) of all whose pattern collides with this one."""
        return [
            (b".".join(tokens), queue, handle)
            for handle, (tokens, queue) in self._sinks.items()
            if collide(tokens, pattern.split(b"."))
        ]


def collide(a: list[bytes], b: list[bytes]) -> bool:
    """Tell whether one literal subject could match both patterns."""
    for left, right in zip(a, b, strict=False):
        if b">" in (left, right):
            return True
        if b"*" not in (left, right) and left != right:
            return False
    return len(a) == len(b)


def covers(wide: list[bytes], narrow: list[bytes]) -> bool:
    """Tell whether ``wide`` matches every literal that ``narrow`` matches."""
    if wide[-1] == b">":
        head = wide[:-1]
        return len(narrow) > len(head) and covers([*head, b"x"], [*narrow[: len(head)], b"x"])
    if len(wide) != len(narrow):
        return False
    return all(n != b">" and w in (b"*", n) for w, n in zip(wide, narrow, strict=True))


def matches(pattern: list[bytes], subject: list[bytes]) -> bool:
    """Tell whether a literal subject's tokens fit a pattern's."""
    if b"" in subject:
        return False
    if pattern[-1] == b">":
        head = pattern[:-1]
        return len(subject) > len(head) and _same(head, subject[: len(head)])
    return len(pattern) == len(subject) and _same(pattern, subject)


def _same(pattern: list[bytes], subject: list[bytes]) -> bool:
    return all(p in (b"*", s) for p, s in zip(pattern, subject, strict=True))
