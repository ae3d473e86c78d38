"""Links as the monitor shows them."""

from functools import partial
from typing import Any

from millstream.links.demand import LinkKind
from millstream.links.leaf import Leaf
from millstream.links.links import Links
from millstream.links.member_route import MemberRoute
from millstream.links.peer_link import PeerLink
from millstream.links.terms import LeafRemote
from millstream.monitor.facts import LinkFacts, SubscriptionFacts


class LinkObserver:
    """Looks at links when asked."""

    def __init__(self, links: Links) -> None:
        self._links = links

    def links(self) -> list[LinkFacts]:
        """Return every link that is open."""
        return [self._look(link) for link in self._links.exchange.all() if link.is_open]

    def traffic(self) -> dict[str, int]:
        """Return what links have moved, and how many were given up, past ones included."""
        exchange = self._links.exchange
        return {**exchange.hub.wishes.stats(), **exchange.given_up}

    def totals(self) -> dict[str, int]:
        """Return the hub's totals, where connections are those of clients."""
        exchange = self._links.exchange
        totals = exchange.hub.stats()
        totals["connections"] -= len(exchange.sessions.links)
        totals["total_connections"] -= exchange.met
        return totals

    def connect_urls(self) -> list[str]:
        """Return where clients reach this server and the other members."""
        return self._links.exchange.sessions.info.connect_urls

    def cluster(self) -> dict[str, Any]:
        """Return what /varz shows of the cluster."""
        mesh = self._links.mesh
        if mesh is None:
            return {}
        host, port = mesh.address or (mesh.terms.host, 0)
        shown = {
            "name": self._links.exchange.sessions.info.cluster,
            "addr": host,
            "cluster_port": port,
            "auth_timeout": mesh.terms.auth_timeout,
            "urls": [route.place for route in mesh.terms.routes],
            "tls_required": mesh.terms.tls is not None,
        }
        return {name: value for name, value in shown.items() if value}

    def leafnodes(self) -> dict[str, Any]:
        """Return what /varz shows of leafnodes."""
        leafs = self._links.leafs
        if leafs is None:
            return {}
        host, port = leafs.address or ("", 0)
        shown = {
            "host": host,
            "port": port,
            "auth_timeout": leafs.terms.auth_timeout,
            "tls_required": leafs.terms.tls is not None,
            "remotes": [_remote(remote) for remote in leafs.terms.remotes],
        }
        return {name: value for name, value in shown.items() if value}

    def _look(self, link: PeerLink) -> LinkFacts:
        hub = self._links.exchange.hub
        stats = hub.connection_stats(link.cid)
        return LinkFacts(
            cid=link.cid,
            is_route=isinstance(link, MemberRoute),
            remote_id=link.remote.id,
            name=link.remote.name,
            ip=link.remote.peer,
            port=stats["port"] or link.remote.port,
            start_ns=link.pulse.started_ns,
            last_activity_ns=max(stats["last_ns"], link.pulse.started_ns),
            rtt_ns=round(link.pulse.rtt_seconds * 1e9),
            stats=stats,
            num_subscriptions=hub.wishes.count(link.cid),
            subscriptions=partial(self._subscriptions, link),
            account=link.space.name if isinstance(link, Leaf) and link.space else "",
            is_spoke=link.kind is LinkKind.SPOKE,
            is_isolated=link.isolated,
            did_solicit=isinstance(link, Leaf | MemberRoute) and link.dialled is not None,
            is_configured=isinstance(link, MemberRoute) and link.is_configured,
        )

    def _subscriptions(self, link: PeerLink) -> list[SubscriptionFacts]:
        name = link.space.name if isinstance(link, Leaf) and link.space else ""
        return [
            SubscriptionFacts(
                name or _text(account), _text(subject), _text(queue), "", delivered, 0, link.cid
            )
            for account, subject, queue, _, delivered in link.hub.wishes.of(link.cid)
        ]


def _remote(remote: LeafRemote) -> dict[str, Any]:
    deny = {"exports": [*remote.deny_exports], "imports": [*remote.deny_imports]}
    kept = {name: value for name, value in deny.items() if value}
    return {
        "local_account": remote.account,
        "urls": [url.place for url in remote.urls],
        **({"deny": kept} if kept else {}),
    }


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
