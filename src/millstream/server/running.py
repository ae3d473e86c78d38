"""RunningParts: the running server as a reload and a departure see it."""

import logging
from collections.abc import Callable, Sequence

from millstream.nats.transport.closed import Closed
from millstream.server.about import advertised, label, show
from millstream.server.build import ServerParts, limits_of, tracing_of
from millstream.server.options.options import LoggingOptions, Options, TlsOptions
from millstream.server.process.log_output import LogOutput, level

log = logging.getLogger(__name__)


class RunningParts:
    """Hands each change to the part that it is about."""

    def __init__(
        self,
        parts: ServerParts,
        output: LogOutput | None,
        write_files: Callable[[Options], None],
    ) -> None:
        self._parts = parts
        self._nats = parts.nats
        self._output = output
        self._write_files = write_files

    # -- reload ------------------------------------------------------------------------------

    def set_limits(self, options: Options) -> None:
        """Hold clients to other limits."""
        self._nats.sessions.set_limits(limits_of(options))

    def set_log(self, log: LoggingOptions) -> None:
        """Say other things, or say them elsewhere."""
        now, traced = tracing_of(log), self._nats.sessions.tracing
        traced.on, traced.headers_only, traced.longest = now.on, now.headers_only, now.longest
        if self._output is not None:
            self._output.change(log)
            logging.root.setLevel(level(log))

    def set_credentials(self, options: Options) -> None:
        """Believe other users; close whoever would not be admitted as before."""
        self._parts.changes.set_credentials(options)

    def set_tls(self, tls: TlsOptions | None) -> None:
        """Use certificates as they are on disk now."""
        guards = self._parts.guards
        if guards.tls is not None and tls is not None:
            guards.tls.reload(tls)
        if guards.websocket_tls is not None:
            guards.websocket_tls.reload()

    def set_mappings(self, options: Options) -> None:
        """Map subjects in another way."""
        self.set_credentials(options)

    def set_about(self, options: Options) -> None:
        """Tell new clients another address, and the system account other tags."""
        advertise(self._parts, options)
        label(self._parts.system.card, options)

    def show(self, options: Options) -> None:
        """Have monitoring show what is in force now."""
        show(self._parts.facts, options, self._parts.facts.clock.time_ns())

    def set_links(self, options: Options) -> None:
        """Call other servers than before."""
        if self._parts.links is not None:
            self._parts.links.change(options.leafnodes, options.cluster)

    def set_files(self, options: Options) -> None:
        """Write the pid and ports files elsewhere."""
        self._write_files(options)

    # -- the log -----------------------------------------------------------------------------

    def reopen_log(self) -> None:
        """Open the log file anew."""
        if self._output is not None:
            self._output.reopen()
            log.info("File log re-opened")

    # -- leaving -----------------------------------------------------------------------------

    def stop_listening(self) -> None:
        """Take no more clients, and tell those that are here to look for another server."""
        nats = self._nats
        nats.stop_listening()
        self._parts.system.leaving()
        if self._parts.links is not None:
            self._parts.links.leave()
        for session in nats.sessions.all():
            session.announce(ldm=True)
        nats.hub.flush()

    def clients(self) -> list[int]:
        """Return who is connected."""
        return [session.cid for session in self._nats.sessions.all()]

    def close_clients(self, clients: Sequence[int]) -> None:
        """Hang up on these."""
        for cid in clients:
            self._nats.hub.close_connection(cid, Closed.SHUTDOWN)
        self._nats.hub.flush()


def advertise(parts: ServerParts, options: Options) -> None:
    """Tell clients that come from now on, and monitoring, where the server is to be found."""
    sessions, facts = parts.nats.sessions, parts.facts
    facts.host, facts.port = advertised(options, parts.nats.address)
    sessions.info = sessions.info.with_(host=facts.host, port=facts.port)
