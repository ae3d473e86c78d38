"""WriteDepth: how many writes wait for their commit, and how many were turned away."""


class WriteDepth:
    """Figures of the writes that came over HTTP, since the start."""

    def __init__(self) -> None:
        self.depth = 0  # now
        self.deepest = 0
        self.refused = 0  # because the log had all that it takes

    def enter(self) -> None:
        """Count a write that was handed to the log."""
        self.depth += 1
        self.deepest = max(self.deepest, self.depth)

    def leave(self) -> None:
        """Count a write out, whatever became of it."""
        self.depth -= 1
