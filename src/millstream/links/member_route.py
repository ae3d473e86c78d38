"""MemberRoute: a link to another member of our cluster; it carries every account."""

import asyncio
import hmac
import logging
from typing import TYPE_CHECKING

from millstream.accounts.permissions import Rule
from millstream.links.demand import LinkKind
from millstream.links.peer_link import LinkRules, PeerLink, Remote
from millstream.nats.transport.closed import Closed
from millstream.wire import errors
from millstream.wire.link_info import (
    LinkConnect,
    LinkInfo,
    MalformedLink,
    parse_link_connect,
    parse_link_info,
)

if TYPE_CHECKING:
    from millstream.links.mesh import Mesh
    from millstream.links.terms import ServerAddress
    from millstream.nats.accounts.accounts import Space

log = logging.getLogger(__name__)


class MemberRoute(PeerLink):
    """One member of the cluster, as it introduced itself."""

    def __init__(
        self,
        mesh: "Mesh",
        cid: int,
        remote: Remote,
        dialled: "ServerAddress | None",
        *,
        implicit: bool,
    ) -> None:
        """``dialled`` says that we opened it; ``implicit``, that another member told us of it."""
        patience = mesh.terms.auth_timeout
        super().__init__(mesh.exchange, cid, LinkKind.ROUTE, remote, patience=patience)
        self.rules = LinkRules(
            asked=mesh.terms.imports or Rule(), outgoing=mesh.terms.exports or Rule()
        )
        self.dialled = dialled
        self.is_implicit = implicit
        self.urls: list[str] = []  # where clients reach it
        self.said: LinkInfo | None = None
        self.is_duplicate = False
        self.was_open = False
        self.gone = asyncio.Event()
        self._mesh = mesh
        self._believed = dialled is not None
        self._tells_origin = False

    @property
    def is_configured(self) -> bool:
        """Whether the configuration names it."""
        return self.dialled is not None and not self.is_implicit

    # ---- who is there --------------------------------------------------------------------------

    def connect(self, options: bytes) -> None:
        """Take CONNECT of a member that opened the route."""
        try:
            said = parse_link_connect(options)
        except MalformedLink:
            self.hub.close_connection(self.cid, Closed.PROTOCOL)
            return
        if said.lang:
            self.end("attempted to connect to route port", Closed.PROTOCOL)
        elif said.gateway:
            text = f'Rejecting connection from gateway "{said.gateway}" on the Route port'
            self.end(text, Closed.PROTOCOL)
        elif not self._is_believed(said):
            self.end(errors.AUTHORIZATION_VIOLATION, Closed.AUTHENTICATION)
        elif not self._mesh.shares_cluster(said.cluster, dynamic=said.cluster_dynamic):
            ours = self.exchange.sessions.info.cluster
            text = f'Rejecting connection, cluster name "{said.cluster}" does not match "{ours}"'
            self.end(text, Closed.PROTOCOL)
        else:
            self._believed = True
            self._tells_origin = said.lnoc

    def _is_believed(self, said: LinkConnect) -> bool:
        terms = self._mesh.terms
        given, held = f"{said.user}\0{said.password}", f"{terms.user}\0{terms.password}"
        return not terms.user or hmac.compare_digest(given.encode(), held.encode())

    def info(self, info: bytes) -> None:
        """Take INFO: of the member itself, or of another one that it knows."""
        try:
            said = parse_link_info(info)
        except MalformedLink:
            self.hub.close_connection(self.cid, Closed.PROTOCOL)
            return
        if not self._believed:
            self.end(errors.AUTHORIZATION_VIOLATION, Closed.AUTHENTICATION)
        elif self.said is None:
            self._introduced(said)
        elif said.server_id != self.said.server_id:
            self._mesh.heard_of(said)
        elif said.ldm:
            self.urls = []
            self._mesh.tell_clients()
        else:
            self.urls = said.connect_urls or []
            self._mesh.tell_clients()

    def _introduced(self, said: LinkInfo) -> None:
        """Take up the route, unless there is one to this member already or it is no member."""
        self.remote.id, self.remote.name = said.server_id, said.server_name
        self.remote.version, self.remote.cluster = said.version, said.cluster
        self.remote.domain, self.remote.go = said.domain, said.go
        self.remote.host, self.remote.port = said.host, said.port
        if said.cluster and not self._mesh.shares_cluster(
            said.cluster, dynamic=said.cluster_dynamic
        ):
            self.end(f'cluster name "{said.cluster}" is not ours', Closed.PROTOCOL)
            return
        problem = self._mesh.problem_with(self, said)
        if problem:
            self.end(problem, Closed.PROTOCOL)
            return
        self.said = said
        if self.dialled is not None:
            self._tells_origin = said.lnoc
            self.hub.write(self.cid, self._mesh.introduction(self.dialled).line())
            self.hub.write(self.cid, self._mesh.greeting().line())
        self._begin(said)

    def _begin(self, said: LinkInfo) -> None:
        self.is_open = self.was_open = True
        self.urls = said.connect_urls or []
        self.hub.wishes.open_link(
            self.cid,
            headers=said.headers and self.exchange.sessions.info.headers,
            tells_origin=self._tells_origin,
            max_payload=self._mesh.largest_message,
        )
        for demand in self.exchange.demands():
            self.join(demand.account)
        self.ask()
        self._mesh.opened(self, said)

    # ---- accounts ------------------------------------------------------------------------------

    def space_named(self, account: bytes) -> "Space | None":
        """Return the account of that name, None where we have none."""
        return self.exchange.space(account.decode("utf-8", "replace"))

    def closed(self, reason: int) -> None:
        """Forget the member; one that was configured is called again."""
        super().closed(reason)
        self.gone.set()
        self._mesh.closed(self)

    @property
    def label(self) -> str:
        """How the log names it."""
        return f"route {self.cid} {self.remote.name or self.remote.peer}"
