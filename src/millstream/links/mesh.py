"""Mesh: the routes to all members of our cluster, which tell each other of those they know."""

import asyncio
import logging
from urllib.parse import urlsplit

import msgspec

from millstream.links.arrivals import Arrivals
from millstream.links.demand import LinkKind
from millstream.links.encrypted import dial_context
from millstream.links.exchange import Exchange
from millstream.links.leaf import rule_told
from millstream.links.member_route import MemberRoute
from millstream.links.peer_link import PeerLink, Remote
from millstream.links.route_callers import RouteCallers
from millstream.links.terms import MAX_PENDING, RouteTerms, ServerAddress
from millstream.listener import Listener
from millstream.nats.transport.closed import Closed
from millstream.nats.transport.tls import Tls
from millstream.supervisor import Supervisor
from millstream.wire.link_info import LinkConnect, LinkInfo

log = logging.getLogger(__name__)

LARGEST_MESSAGE = 64 << 20  # another member may allow its clients more than we do


class Mesh:
    """Listens for members, calls those that are configured or told of, and knows them all."""

    largest_message = LARGEST_MESSAGE

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        exchange: Exchange,
        terms: RouteTerms,
        supervisor: Supervisor,
    ) -> None:
        self.exchange = exchange
        self.terms = terms
        self.address: tuple[str, int] | None = None
        self._loop = loop
        self._tls = Tls(terms.tls) if terms.tls is not None else None
        self._arrivals = Arrivals(loop, exchange, self, self._tls, supervisor, tls_first=True)
        self._listener = Listener(loop, self._arrivals.accepted)
        self._callers = RouteCallers(loop, self, supervisor)
        self._own_urls: list[str] = []
        self._is_dynamic = terms.is_dynamic
        self._is_leaving = False
        self._is_over = False

    # ---- starting and stopping -----------------------------------------------------------------

    def listen(self) -> None:
        """Take members from here on."""
        assert self.terms.port is not None
        self.address = self._listener.start(self.terms.host, self.terms.port)
        log.info("Listening for route connections on %s:%d", *self.address)

    def start(self, client_places: list[str]) -> None:
        """Call the configured members; ``client_places`` is where clients reach us."""
        self._own_urls = [] if self.terms.no_advertise else client_places
        if self.terms.dial_tls is not None:
            dial_context(self.terms.dial_tls)  # reads files, which no route shall wait for
        self.tell_clients()
        for address in self.terms.routes:
            self._callers.keep(address, implicit=False)

    def stop(self) -> None:
        """Listen no more, call no more, and close every route."""
        self._is_over = True
        self._listener.stop()
        self._arrivals.stop()
        self._callers.stop()
        for route in self.all():
            self.exchange.hub.close_connection(route.cid, Closed.SHUTDOWN)

    def leave(self) -> None:
        """Tell members and clients that this server goes."""
        self._is_leaving = True
        self._listener.stop()
        for route in self.all():
            if route.is_open:
                self.exchange.hub.write(route.cid, self.greeting().line())
        self.exchange.hub.flush()

    def all(self) -> list[MemberRoute]:
        """Return every route, also one that did not say yet who it is."""
        return [link for link in self.exchange.all() if isinstance(link, MemberRoute)]

    def tick(self) -> None:
        """Look at deadlines."""
        for route in self.all():
            route.ping(self.terms.ping_interval, self.terms.ping_max)

    def change(self, terms: RouteTerms) -> None:
        """Call the members that are configured now, and no others; who is connected stays."""
        self.terms = terms
        self._callers.forget({address.place for address in terms.routes})
        for address in terms.routes:
            self._callers.keep(address, implicit=False)

    def renew(self) -> None:
        """Tell members of accounts that came since."""
        for route in self.all():
            if route.is_open:
                for demand in self.exchange.demands():
                    route.join(demand.account)

    # ---- those that come -----------------------------------------------------------------------

    def received(self, cid: int, peer: str) -> PeerLink:
        """Return the route of a connection that came."""
        self.exchange.hub.wishes.link(cid, LinkKind.ROUTE, MAX_PENDING)
        return MemberRoute(self, cid, Remote(peer=peer), None, implicit=False)

    def greet(self, link: PeerLink) -> bytes:
        """Return the INFO that it is greeted with."""
        return self.greeting().line()

    def knows(self, link: PeerLink, names: tuple[str, ...]) -> None:
        """Take the names in its certificate: between members they mean nothing more."""

    def greeting(self) -> LinkInfo:
        """Return what we say of ourselves; never of JetStream, which is not shared by routes."""
        info = self.exchange.sessions.info
        host, port = self.address or ("", 0)
        return LinkInfo(
            server_id=info.server_id,
            server_name=info.server_name,
            version=info.version,
            proto=1,
            go=info.go,
            host=host,
            port=port,
            headers=info.headers,
            max_payload=info.max_payload,
            auth_required=bool(self.terms.user),
            tls_required=self._tls is not None,
            tls_verify=self._tls is not None,
            cluster=info.cluster,
            cluster_dynamic=self._is_dynamic,
            domain=info.domain,
            connect_urls=self._own_urls or None,
            ip=f"nats-route://{self.terms.advertise}/" if self.terms.advertise else "",
            ldm=self._is_leaving,
            lnoc=True,
            imports=rule_told(self.terms.imports) if self.terms.imports is not None else None,
            exports=rule_told(self.terms.exports) if self.terms.exports is not None else None,
        )

    def shares_cluster(self, name: str, *, dynamic: bool) -> bool:
        """Say whether a member is of our cluster; one without a name of its own takes another's."""
        sessions = self.exchange.sessions
        ours = sessions.info.cluster
        if name == ours:
            return True
        if not self._is_dynamic or (dynamic and name < ours):
            return False
        self._is_dynamic = dynamic
        sessions.info = sessions.info.with_(cluster=name)
        return True

    def problem_with(self, route: MemberRoute, said: LinkInfo) -> str:
        """Return why a server cannot be a member, nothing if it can."""
        info = self.exchange.sessions.info
        if said.server_id == info.server_id:
            route.is_duplicate = True
            return "this is a route to itself"
        if said.server_name == info.server_name:
            return f'Remote server has a duplicate name: "{said.server_name}"'
        if info.jetstream and said.jetstream and said.domain == info.domain:
            return (
                f'JetStream runs on both servers with the domain "{info.domain}": give each its own'
            )
        older = next((r for r in self.all() if r.is_open and r.remote.id == said.server_id), None)
        if older is None:
            return ""
        if not self._is_better(route, older, said):
            route.is_duplicate = True
            return "Duplicate Route"
        older.is_duplicate = True
        self.exchange.hub.close_connection(older.cid, Closed.PROTOCOL)
        return ""

    def _is_better(self, route: MemberRoute, older: MemberRoute, said: LinkInfo) -> bool:
        """Of two routes between the same servers both keep the one that the greater id opened."""
        info = self.exchange.sessions.info
        if said.go != info.go or (route.dialled is None) == (older.dialled is None):
            return False  # nats-server keeps the older
        opener = info.server_id if route.dialled is not None else said.server_id
        return opener == max(info.server_id, said.server_id)

    # ---- those that we call --------------------------------------------------------------------

    def introduction(self, dialled: ServerAddress) -> LinkConnect:
        """Return what we say of ourselves to a member that we called."""
        info = self.exchange.sessions.info
        return LinkConnect(
            name=info.server_id,
            user=dialled.user,
            password=dialled.password,
            headers=info.headers,
            cluster=info.cluster,
            cluster_dynamic=self._is_dynamic,
            lnoc=True,
            tls_required=self.terms.dial_tls is not None,
        )

    def heard_of(self, said: LinkInfo) -> None:
        """Call a member that another one told us of."""
        info = self.exchange.sessions.info
        if said.server_id == info.server_id:
            return
        if any(route.remote.id == said.server_id for route in self.all()):
            return
        place = urlsplit(said.ip) if said.ip else urlsplit(f"nats-route://{said.host}:{said.port}")
        if not place.hostname or not place.port:
            return
        address = ServerAddress(place.hostname, place.port, self.terms.user, self.terms.password)
        self._callers.keep(address, implicit=True)

    # ---- what routes tell ----------------------------------------------------------------------

    def opened(self, route: MemberRoute, said: LinkInfo) -> None:
        """Have the members that we know call the new one, and clients hear of it."""
        log.info("Route connection %s: server %s", route.cid, route.remote.name)
        told = said
        if not told.ip:
            host = f"[{route.remote.peer}]" if ":" in route.remote.peer else route.remote.peer
            told = msgspec.structs.replace(said, ip=f"nats-route://{host}:{said.port}/")
        for other in self.all():
            if other is not route and other.is_open and said.port:
                self.exchange.hub.write(other.cid, told.line())
        self.tell_clients()

    def closed(self, route: MemberRoute) -> None:
        """Have clients hear that a member is gone."""
        if route.was_open and not self._is_over:
            self.tell_clients()

    def tell_clients(self) -> None:
        """Tell clients where else they can connect, if that changed."""
        sessions = self.exchange.sessions
        if self.terms.no_advertise:
            return
        urls = [*self._own_urls, *(url for r in self.all() if r.is_open for url in r.urls)]
        known = list(dict.fromkeys(urls))
        if known == sessions.info.connect_urls:
            return
        sessions.info = sessions.info.with_(connect_urls=known)
        for session in sessions.all():
            session.announce(connect_urls=known)
        self._loop.call_soon(self.exchange.hub.flush)
