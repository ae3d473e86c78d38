"""ReadPosition: where a reader stands in a topic, and what it was told there."""

ANEW = 2**64 - 1  # a position above any head, which is how a topic made anew shows itself


class ReadPosition:
    """A position in one topic. It is kept here and nowhere else, whoever moves it."""

    __slots__ = ("cursor", "incarnation", "is_caught_up", "is_first_read", "sent_at")

    def __init__(self, cursor: int, incarnation: int | None = None) -> None:
        self.cursor = cursor  # the last sequence that was seen
        self.incarnation = incarnation  # of the stream that the position is of, once it is known
        self.is_caught_up = False  # and the client knows
        self.is_first_read = True  # nothing was read from it yet
        self.sent_at = 0.0  # when something was last pushed, on the loop's clock

    def copy(self) -> "ReadPosition":
        """Return the same position as another connection goes on from it, which knows nothing."""
        return ReadPosition(self.cursor, self.incarnation)

    def meet(self, incarnation: int) -> None:
        """Read a topic that was deleted and made anew from its beginning, and have that told."""
        if self.incarnation not in (None, incarnation):
            self.cursor = ANEW if self.cursor else 0
        self.incarnation = incarnation
