"""Opening: the HTTP port from the moment that the directory is ours to the first real answer."""

from typing import TYPE_CHECKING

from millstream.clock import Clock
from millstream.server.options.options import Options
from millstream.server.recovery_progress import RecoveringFiles, RecoveryProgress
from millstream.server.start_failures import listening
from millstream.store.disk.files import OsFiles
from millstream.store.disk.lock import lock_directory
from millstream.store.wal.meter import MeteredFiles
from millstream.supervisor import Supervisor

if TYPE_CHECKING:
    import ssl
    from socket import socket

    from millstream.server.waiting_room import WaitingRoom


class Opening:
    """What a start begins with: the disk that it recovers from, and a room for those who come."""

    def __init__(
        self,
        files: MeteredFiles,
        room: "WaitingRoom | None" = None,
        bound: "list[socket] | None" = None,
    ) -> None:
        self.files = files
        self._room = room
        self._bound = bound

    def take(self) -> "list[socket] | None":
        """Return the sockets for whoever serves from now on; None where nobody had to wait."""
        self._end()
        bound, self._bound = self._bound, None
        return bound

    def abandon(self) -> None:
        """Close what nobody took, as the start has failed; harmless when it has not."""
        self._end()
        for each in self._bound or ():
            each.close()
        self._bound = None

    def _end(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.close()
        if isinstance(self.files, RecoveringFiles):
            self.files.recovered()


def begin(options: Options, clock: Clock, supervisor: Supervisor | None = None) -> Opening:
    """Have the HTTP port answer that the server is not ready yet.

    Where there is nothing to replay, the start is over before anybody could ask.
    """
    directory = options.jetstream.directory.resolve() if options.jetstream is not None else None
    progress = RecoveryProgress(directory) if directory is not None else None
    if progress is None or not progress.is_needed or not options.monitor.listens:
        return Opening(MeteredFiles(clock))
    from millstream.http import sockets
    from millstream.server.waiting_room import WaitingRoom

    # A directory that another process has is told before a port is taken.
    lock_directory(OsFiles(), str(directory)).close()
    host, port, tls = http_place(options)
    with listening(options, "http", host, port):
        bound = sockets.bound(host, port)
    share = None if options.monitor.probe_auth else lambda: progress.share
    hosts = options.monitor.allowed_hosts
    room = WaitingRoom(host, bound, clock, tls, share, hosts, supervisor)
    room.open()
    return Opening(RecoveringFiles(clock, progress), room, bound)


def http_place(options: Options) -> "tuple[str, int, ssl.SSLContext | None]":
    """Return where HTTP is served, and by which certificate where that is HTTPS."""
    monitor = options.monitor
    if monitor.tls_port is not None and options.tls is not None:
        from millstream.nats.transport.tls import Tls

        return options.monitor_host, monitor.tls_port, Tls(options.tls).server_context()
    return options.monitor_host, monitor.port or 0, None
