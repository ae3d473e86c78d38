"""Haste: a write that comes alone is committed before the call that hands it over returns.

The log commits in the loop's next turn, so that what comes together shares a commit. A request that
is answered as it is read has nobody to share with: without the turn it needs neither a task to wait
nor another look at every socket.
"""

from collections.abc import Callable

Call = Callable[[], None]


class Haste:
    """Stands where the store posts its calls to the loop; ``later`` is where they went before."""

    def __init__(self, later: Callable[[Call], object]) -> None:
        self._later = later
        self._is_due = False

    def soon(self, call: Call) -> None:
        """Run the first call of a hasty write at once, and any other when the loop comes round.

        What a commit sets in motion must not be committed inside of it: that would overtake what
        was committed with it.
        """
        if self._is_due:
            self._is_due = False
            call()
        else:
            self._later(call)

    def __enter__(self) -> None:
        self._is_due = True

    def __exit__(self, *_: object) -> None:
        self._is_due = False
