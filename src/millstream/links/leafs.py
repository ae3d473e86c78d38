"""Leafs: every leafnode link, those that came to us and those that we opened."""

import asyncio
import base64
import logging
import random
import secrets
import socket
from collections.abc import Callable

import msgspec

from millstream.accounts.permissions import Permissions
from millstream.links.arrivals import Arrivals, places
from millstream.links.demand import LOOP_PREFIX, LinkKind
from millstream.links.dialing import dial, encrypt, first_info
from millstream.links.encrypted import EncryptedLink, dial_context
from millstream.links.exchange import Exchange
from millstream.links.leaf import JETSTREAM, SYSTEM_JETSTREAM, Leaf, rule_told, with_denied
from millstream.links.peer_link import LinkRules, PeerLink, Remote
from millstream.links.terms import MAX_PENDING, DialTls, LeafRemote, LeafTerms, ServerAddress
from millstream.listener import Listener
from millstream.nats.accounts.accounts import Space
from millstream.nats.transport.closed import Closed
from millstream.nats.transport.tls import Tls
from millstream.nats.transport.transport import Kind
from millstream.supervisor import Supervisor
from millstream.wire.link_info import LinkConnect, LinkInfo, parse_link_info

log = logging.getLogger(__name__)

_JITTER = 0.1
_TOLD_EVERY = 60  # failures to connect
_LARGEST_DISCOVERED = 64
_PING_INTERVAL = 120.0
_PING_MAX = 2

LeafWatcher = Callable[[Leaf, bool], None]


class Leafs:
    """Listens for leafs, and keeps a link to each remote."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        exchange: Exchange,
        terms: LeafTerms,
        supervisor: Supervisor,
        default_domains: frozenset[str] = frozenset(),
    ) -> None:
        """``default_domains`` are accounts whose JetStream API passes as if it had no domain."""
        self.exchange = exchange
        self.terms = terms
        self.address: tuple[str, int] | None = None
        self.watchers: list[LeafWatcher] = []
        self._loop = loop
        self._supervisor = supervisor
        self._tls = Tls(terms.tls) if terms.tls is not None else None
        self._arrivals = Arrivals(loop, exchange, self, self._tls, supervisor)
        self._listener = Listener(loop, self._arrivals.accepted)
        self._marks: dict[str, bytes] = {}
        self._callers: dict[int, asyncio.Task[None]] = {}
        self._discovered: dict[int, list[ServerAddress]] = {}
        self._default_domains = default_domains
        self._is_over = False

    # ---- starting and stopping -----------------------------------------------------------------

    def listen(self) -> None:
        """Take leafs from here on."""
        assert self.terms.port is not None
        self.address = self._listener.start(self.terms.host, self.terms.port)
        log.info("Listening for leafnode connections on %s:%d", *self.address)

    def start(self) -> None:
        """Call the remotes."""
        for remote in self.terms.remotes:
            if remote.tls is not None:
                dial_context(remote.tls)  # reads files, which no link shall wait for
        for at, remote in enumerate(self.terms.remotes):
            if not remote.disabled:
                self._keep(at, remote)

    def _keep(self, at: int, remote: LeafRemote) -> None:
        task = self._loop.create_task(self._call_again(at, remote))
        name = f"the leafnode remote {remote.urls[0].place}"
        over = lambda: self._is_over or task not in self._callers.values()  # noqa: E731
        self._supervisor.task(name, task, over, lambda error: None)
        self._callers[at] = task

    def stop(self) -> None:
        """Listen no more, call no more, and close every link."""
        self._is_over = True
        self._listener.stop()
        self._arrivals.stop()
        for task in self._callers.values():
            task.cancel()
        for leaf in self.all():
            self.exchange.hub.close_connection(leaf.cid, Closed.SHUTDOWN)

    def change(self, terms: LeafTerms) -> None:
        """Call the remotes that are configured now; links to those that are gone close."""
        before = dict(enumerate(self.terms.remotes))
        kept = [remote for remote in terms.remotes if not remote.disabled]
        for at, remote in before.items():
            if remote not in kept and at in self._callers:
                self._callers.pop(at).cancel()
        for leaf in self.all():
            if leaf.dialled is not None and leaf.dialled not in kept:
                self.exchange.hub.close_connection(leaf.cid, Closed.CLIENT)
        called = {before[at]: task for at, task in self._callers.items()}
        self.terms = terms
        self._callers, self._discovered = {}, {}
        for at, remote in enumerate(terms.remotes):
            if remote in called:
                self._callers[at] = called.pop(remote)
            elif not remote.disabled:
                self._keep(at, remote)

    def all(self) -> list[Leaf]:
        """Return every leafnode link that is there, also one that did not say yet who it is."""
        return [link for link in self.exchange.all() if isinstance(link, Leaf)]

    def tick(self) -> None:
        """Look at deadlines."""
        for leaf in self.all():
            leaf.ping(_PING_INTERVAL, _PING_MAX)

    # ---- those that come -----------------------------------------------------------------------

    def received(self, cid: int, peer: str) -> PeerLink:
        """Return the link of a connection that came."""
        hub = self.exchange.hub
        hub.wishes.link(cid, LinkKind.HUB, MAX_PENDING)
        return Leaf(self, cid, Remote(peer=peer), None, self._greeting(cid))

    def greet(self, link: PeerLink) -> bytes:
        """Return the INFO that it is greeted with."""
        assert isinstance(link, Leaf)
        return link.greeting.line()

    def knows(self, link: PeerLink, names: tuple[str, ...]) -> None:
        """Take the names in the certificate that it showed."""
        assert isinstance(link, Leaf)
        link.login.certificate_names = names

    def _greeting(self, cid: int) -> LinkInfo:
        info, reception = self.exchange.sessions.info, self.exchange.sessions.reception
        host, port = self.address or (self.terms.host, self.terms.port or 0)
        wants_nonce = reception.wants_nonce(Kind.LEAFNODE)
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
            auth_required=reception.required(Kind.LEAFNODE),
            tls_required=self._tls is not None,
            tls_verify=self._tls is not None and self._tls.terms.verify,
            jetstream=info.jetstream,
            client_id=cid,
            nonce=_nonce() if wants_nonce else "",
            cluster=info.cluster,
            domain=info.domain,
            leafnode_urls=[]
            if self.terms.no_advertise
            else places(host, port, self.terms.advertise),
            info_on_connect=True,
        )

    def problem_with(self, said: LinkConnect) -> str:
        """Return why a server cannot be a leaf of ours, nothing if it can."""
        ours = self.exchange.sessions.info.cluster
        if said.lang:
            return "attempted to connect to leaf node port"
        if said.gateway:
            return f'Rejecting connection from gateway "{said.gateway}" on the leafnode port'
        if " " in said.cluster:
            return "cluster name cannot contain spaces"
        if ours and said.cluster == ours:
            return "remote leafnode has same cluster name"
        if _version(said.version) < self.terms.min_version:
            least = ".".join(str(part) for part in self.terms.min_version)
            return f'connection rejected since minimum version required is "{least}"'
        return ""

    def is_full(self, space: Space) -> bool:
        """Whether an account has as many leafnodes as it may."""
        most = space.account.limits.max_leafnodes
        here = sum(leaf.is_open and leaf.space is space for leaf in self.all())
        return 0 <= most <= here

    def replace_older(self, leaf: Leaf) -> None:
        """Close a link of the same server and account that we have not missed yet."""
        for other in self.all():
            if (
                other is not leaf
                and other.is_open
                and other.dialled is None
                and leaf.remote.account
                and (other.remote.name, other.remote.cluster, other.remote.account)
                == (leaf.remote.name, leaf.remote.cluster, leaf.remote.account)
            ):
                other.end("Duplicate Remote LeafNode Connection", Closed.PROTOCOL)

    def confirmation(self, leaf: Leaf, rights: Permissions) -> LinkInfo:
        """Return the INFO that tells a leaf where it came and what it may do."""
        assert leaf.space is not None
        return leaf.greeting.with_(
            connect_info=True,
            remote_account=leaf.space.name,
            acc_is_sys=leaf.space is self.exchange.accounts.system,
            imports=rule_told(rights.subscribe),
            exports=rule_told(rights.publish),
        )

    # ---- those that we call --------------------------------------------------------------------

    def introduction(self, dialled: LeafRemote) -> LinkConnect:
        """Return what we say of ourselves to a hub."""
        info = self.exchange.sessions.info
        space = self.exchange.space(dialled.account)
        return LinkConnect(
            version=info.version,
            server_id=info.server_id,
            name=info.server_name,
            domain=info.domain,
            cluster=info.cluster,
            headers=info.headers,
            jetstream=info.jetstream and space is not None and space.account.jetstream,
            is_hub=dialled.hub,
            deny_pub=list(dialled.deny_imports) or None,
            isolate=dialled.isolate,
            remote_account=dialled.account,
            protocol=1,
        )

    def learn(self, dialled: LeafRemote, urls: list[str]) -> None:
        """Note where else the hub's cluster takes leafs."""
        for at, remote in enumerate(self.terms.remotes):
            if remote is dialled and not remote.ignores_discovered:
                found = [_address(url, remote) for url in urls[:_LARGEST_DISCOVERED]]
                self._discovered[at] = [address for address in found if address is not None]

    async def _call_again(self, at: int, remote: LeafRemote) -> None:
        failures, turn = 0, 0
        listed = list(remote.urls)
        if not remote.no_randomize:
            random.shuffle(listed)
        while not self._is_over:
            known = listed + [
                address
                for address in self._discovered.get(at, ())
                if address.place not in {url.place for url in listed}
            ]
            address = known[turn % len(known)]
            turn += 1
            delay = self.terms.reconnect + random.uniform(0, _JITTER)
            try:
                leaf = await self._call(remote, address)
            except (OSError, TimeoutError, ValueError) as error:
                if failures % _TOLD_EVERY == 0:
                    log.error(
                        "Error trying to connect as leafnode to remote server %s (attempt %d): %s",
                        address.place, failures + 1, error or "no answer in time",
                    )  # fmt: skip
                failures += 1
            else:
                await leaf.gone.wait()
                failures = 0 if leaf.was_open else failures + 1
                delay = leaf.delay or delay
            await asyncio.sleep(delay)

    async def _call(self, remote: LeafRemote, address: ServerAddress) -> Leaf:
        sock = await dial(address, self.terms.dial_timeout)
        try:
            return await self._introduce(remote, address, sock)
        except BaseException:
            sock.close()
            raise

    async def _introduce(
        self, remote: LeafRemote, address: ServerAddress, sock: socket.socket
    ) -> Leaf:
        tls = remote.tls or (DialTls() if address.tls else None)
        hub, said = self.exchange.hub, b""
        if tls is None or not tls.first:
            said = await first_info(sock, remote.first_wait or self.terms.auth_timeout)
            if parse_link_info(said).tls_required:
                tls = tls or DialTls()
            elif tls is not None:
                raise OSError("the hub does not offer TLS, and the remote asks for it")
        carrier = EncryptedLink(hub)
        if tls is None:
            cid = self.exchange.sessions.open_link(sock.detach())
        else:
            cid = self.exchange.sessions.open_link(None, carrier)
            carrier.bind(cid)
        hub.wishes.link(cid, LinkKind.HUB if remote.hub else LinkKind.SPOKE, MAX_PENDING)
        there = Remote(peer=address.host, host=address.host, port=address.port)
        leaf = Leaf(self, cid, there, remote, self._greeting(cid))
        leaf.login.address = address
        self.exchange.add(leaf)
        if tls is not None:
            try:
                await encrypt(sock, tls, address.host, lambda: carrier)
            except BaseException:
                hub.close_connection(cid, Closed.TLS_HANDSHAKE)
                raise
        if said:
            leaf.info(said)
        hub.flush()
        return leaf

    # ---- what links ask ------------------------------------------------------------------------

    def loop_mark(self, account: str) -> bytes:
        """Return the subject that must never come back to us in an account."""
        if account not in self._marks:
            self._marks[account] = LOOP_PREFIX + secrets.token_hex(11).upper().encode()
        return self._marks[account]

    def without_jetstream(self, rules: LinkRules, leaf: Leaf, *, is_system: bool) -> LinkRules:
        """Return rules that keep each side's JetStream API, and its buckets, to itself.

        Over there it has the name of its domain. A leaf's messages are judged by its user's rights.
        """
        assert leaf.space is not None
        if leaf.space.name in self._default_domains:
            return rules
        kept = SYSTEM_JETSTREAM if is_system else JETSTREAM
        info = self.exchange.sessions.info
        ours = (f"$JS.{info.domain}.API.>",) if info.domain and info.jetstream else ()
        asked = with_denied(rules.asked, kept)
        incoming = asked if leaf.kind is LinkKind.SPOKE else rules.incoming
        return LinkRules(asked, incoming, with_denied(rules.outgoing, (*kept, *ours)))

    def opened(self, leaf: Leaf) -> None:
        """Tell that a link is there."""
        log.info(
            "Leafnode connection %s: account %s, server %s", leaf.cid,
            leaf.space.name if leaf.space is not None else "", leaf.remote.name,
        )  # fmt: skip
        for watcher in self.watchers:
            watcher(leaf, True)

    def closed(self, leaf: Leaf) -> None:
        """Tell that a link is gone."""
        if leaf.was_open:
            for watcher in self.watchers:
                watcher(leaf, False)


def _nonce() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(11)).decode().rstrip("=")


def _version(text: str) -> tuple[int, int, int]:
    """Return a version's three numbers; what cannot be read is the oldest."""
    parts = text.split("-")[0].lstrip("v").split(".")
    try:
        major, minor, update = (int(part) for part in parts)
    except ValueError:
        return (0, 0, 0)
    return (major, minor, update)


def _address(place: str, remote: LeafRemote) -> ServerAddress | None:
    """Return a discovered ``host:port``, with the credentials of the remote's first URL."""
    host, _, port = place.rpartition(":")
    if not port.isdecimal():
        return None
    first = remote.urls[0]
    return msgspec.structs.replace(first, host=host.strip("[]"), port=int(port))
