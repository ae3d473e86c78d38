"""Endings: the statuses that end pull requests which got less than they asked for."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.consumers.outlet import Outlet
    from millstream.consumers.pull.requests import PullRequest, WaitingLine


class Endings:
    """Takes requests out of the line and tells who asked."""

    def __init__(self, line: "WaitingLine", outlet: "Outlet") -> None:
        self._line = line
        self._outlet = outlet

    def end(self, request: "PullRequest", status: str) -> None:
        """End a request with a status."""
        self._line.remove(request)
        self.tell(request, status)

    def tell(self, request: "PullRequest", status: str) -> None:
        """Send the status of a request that has left the line, and what it did not get."""
        self._outlet.status(
            request.reply,
            status,
            (
                (b"Nats-Pending-Messages", b"%d" % request.batch),
                (b"Nats-Pending-Bytes", b"%d" % max(request.bytes_left, 0)),
            ),
        )

    def end_empty(self, request: "PullRequest") -> None:
        """End a request for which there is nothing."""
        self._line.remove(request)
        self._outlet.status(request.reply, "404 No Messages")

    def end_impatient(self) -> None:
        """End the requests that do not want to wait."""
        for request in self._line:
            if request.has_enough:
                self.end_empty(request)
        self._outlet.flush()

    def end_unheard(self) -> None:
        """Forget the requests whose clients do not listen any more."""
        for request in self._line:
            if not self._outlet.is_heard(request.reply):
                self._line.remove(request)
