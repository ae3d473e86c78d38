"""Leaf: a link to our hub, or from a leaf to us; it is about one account on each side."""

import asyncio
import logging
from typing import TYPE_CHECKING

from millstream.accounts.credentials import Presented
from millstream.accounts.permissions import BadPermission, Permissions, Rule, SubjectRule
from millstream.kernel._hub import DENIED
from millstream.links.demand import LOOP_PREFIX, LinkKind, Wish
from millstream.links.leaf_login import LeafLogin
from millstream.links.leaf_rights import LeafRights
from millstream.links.peer_link import LinkRules, PeerLink, Remote
from millstream.links.terms import MAX_PENDING
from millstream.nats.transport.closed import Closed
from millstream.nats.transport.transport import Kind
from millstream.wire import errors
from millstream.wire.link_info import (
    LinkConnect,
    LinkInfo,
    LinkRule,
    MalformedLink,
    parse_link_connect,
    parse_link_info,
)

if TYPE_CHECKING:
    from millstream.links.leafs import Leafs
    from millstream.links.terms import LeafRemote
    from millstream.nats.accounts.accounts import Space

log = logging.getLogger(__name__)

JETSTREAM = ("$JS.API.>", "$KV.>", "$OBJ.>")
SYSTEM_JETSTREAM = ("$JSC.>", "$NRG.>", *JETSTREAM)
LOOP_DELAY = 30.0
SAME_CLUSTER_DELAY = 30.0
VIOLATION_DELAY = 30.0
_SAME_CLUSTER = "remote leafnode has same cluster name"
_WRONG_PORT = "attempted to connect to leaf node port"


class Leaf(PeerLink):
    """Binds an account of ours to one of another server's."""

    def __init__(
        self,
        leafs: "Leafs",
        cid: int,
        remote: Remote,
        dialled: "LeafRemote | None",
        greeting: LinkInfo,
    ) -> None:
        """``dialled`` says that we opened it; ``greeting`` is what we greet who opened it with."""
        is_spoke = dialled is not None and not dialled.hub
        kind = LinkKind.SPOKE if is_spoke else LinkKind.HUB
        super().__init__(leafs.exchange, cid, kind, remote, patience=leafs.terms.auth_timeout)
        self.dialled = dialled
        self.space: Space | None = None
        self.rights: LeafRights | None = None
        self.user = ""
        self.delay = 0.0  # before we open it again
        self.was_open = False
        self._leafs = leafs
        self.greeting = greeting
        self.login = LeafLogin(dialled)
        self.gone = asyncio.Event()

    # ---- who is there --------------------------------------------------------------------------

    def connect(self, options: bytes) -> None:
        """Take CONNECT of a server that opened the link."""
        if self.dialled is not None or self.space is not None:
            self.hub.close_connection(self.cid, Closed.PROTOCOL)
            return
        try:
            said = parse_link_connect(options)
        except MalformedLink:
            self.hub.close_connection(self.cid, Closed.PROTOCOL)
            return
        problem = self._leafs.problem_with(said)
        if problem:
            self.end(problem, Closed.PROTOCOL)
            return
        admitted = self.exchange.sessions.reception.admit(self._presented(said))
        if admitted is None:
            log.error("%s: its credentials are not believed", self.label)
            self.end(errors.AUTHORIZATION_VIOLATION, Closed.AUTHENTICATION)
            return
        if self._leafs.is_full(admitted.space):
            self.end(errors.MAXIMUM_ACCOUNT_CONNECTIONS, Closed.ACCOUNT_FULL)
            return
        self.user = admitted.identity.name
        self._know(said.name, said.server_id, said.version, said.cluster, said.domain)
        self.remote.account = said.remote_account
        self.isolated = said.isolate or self._leafs.terms.isolate
        if said.is_hub:
            self.kind = LinkKind.SPOKE
            self.hub.wishes.link(self.cid, self.kind, MAX_PENDING)
        self._leafs.replace_older(self)
        self._enter(admitted.space, hub_rules(admitted.identity.permissions, said.deny_pub))
        self._begin(said.headers, admitted.identity.permissions)

    def _presented(self, said: LinkConnect) -> Presented:
        return Presented(
            user=said.user,
            password=said.password,
            token=said.auth_token,
            nkey=said.nkey,
            signature=said.sig,
            jwt=said.jwt,
            nonce=self.greeting.nonce,
            address=self.remote.peer,
            connection_type=Kind.LEAFNODE,
            certificate_names=self.login.certificate_names,
        )

    def info(self, info: bytes) -> None:
        """Take INFO: of a hub that we called, its greeting, then which account it gave us."""
        try:
            said = parse_link_info(info)
        except MalformedLink:
            self.hub.close_connection(self.cid, Closed.PROTOCOL)
            return
        if self.dialled is None:
            return
        if not self.remote.id:
            self._greeted(said)
        elif said.connect_info and not self.is_open:
            self._accepted(said)
        if said.leafnode_urls:
            self._leafs.learn(self.dialled, said.leafnode_urls)

    def _greeted(self, said: LinkInfo) -> None:
        """Say who we are to the hub that greets us."""
        assert self.dialled is not None
        # A hub that does not advertise tells no addresses, but no port for clients says the other.
        if not said.client_id or (said.leafnode_urls is None and not said.info_on_connect):
            self.end("attempted to connect to wrong port", Closed.PROTOCOL)
            return
        self._know(
            said.server_name or said.server_id,
            said.server_id,
            said.version,
            said.cluster,
            said.domain,
        )
        try:
            line = self.login.line(said, self._leafs.introduction(self.dialled))
        except (OSError, ValueError) as error:
            self.delay = SAME_CLUSTER_DELAY
            self.end(f"cannot log in: {error}", Closed.AUTHENTICATION)
            return
        self.hub.write(self.cid, line)
        self.ask()
        if not said.info_on_connect:
            self._accepted(said)

    def _accepted(self, said: LinkInfo) -> None:
        """Take up the link: the hub believes us."""
        assert self.dialled is not None
        space = self.exchange.space(self.dialled.account)
        if space is None:
            self.delay = SAME_CLUSTER_DELAY
            self.end(f"there is no account {self.dialled.account!r}", Closed.AUTHENTICATION)
            return
        self.remote.account = said.remote_account
        self._enter(space, spoke_rules(self.dialled, said))
        self._begin(said.headers, None)

    def _know(self, name: str, server_id: str, version: str, cluster: str, domain: str) -> None:
        self.remote.name, self.remote.id, self.remote.version = name, server_id, version
        self.remote.cluster, self.remote.domain = cluster, domain
        self.cluster = cluster.encode()
        self.hub.wishes.name_cluster(self.cid, self.cluster)

    # ---- the account ---------------------------------------------------------------------------

    def _enter(self, space: "Space", rules: LinkRules) -> None:
        self.space = space
        sessions = self.exchange.sessions
        subjects_of = sessions.reception.subjects_of
        self.rights = LeafRights(space, rules, subjects_of, sessions.info.domain)
        is_system = space is self.exchange.accounts.system
        self.rules = self._leafs.without_jetstream(rules, self, is_system=is_system)

    def _begin(self, headers: bool, told: Permissions | None) -> None:
        """Open the link both ways; ``told`` are the rights that a leaf has here."""
        assert self.space is not None
        assert self.rights is not None
        self.is_open = True
        self.hub.wishes.open_link(
            self.cid,
            headers=headers and self.greeting.headers,
            guarded=self.rules.guards_input or self.rights.are_limited,
            mapped=self.space.mapper is not None,
            trusted=not self.rights.are_limited,
            interest=self.space.interest,
            max_payload=self.greeting.max_payload,
        )
        mark = self._leafs.loop_mark(self.space.name)
        if told is not None:
            self.hub.write(self.cid, self._leafs.confirmation(self, told).line())
        self.hub.write(self.cid, self.told.line("", (mark, b""), 1))
        self.join(self.space.name)
        if told is not None:
            self.ask()
        self._leafs.opened(self)

    def space_named(self, account: bytes) -> "Space | None":
        """Return the one account that the link is about."""
        return self.space

    @property
    def judged(self) -> LeafRights | None:
        """Return what the other server may do here, where that is not everything."""
        return self.rights

    def may_publish(self, subject: bytes) -> int:
        """Judge a message that comes in, also by what it would have an API show or change."""
        allowed = super().may_publish(subject)
        if allowed == DENIED or self.rights is None or not self.rights.are_limited:
            return allowed
        allowed = self.rights.judge(subject)
        if allowed == DENIED:  # a client there asks for too much: the others keep the link
            log.info("%s: its rights do not reach %r", self.label, subject)
        return allowed

    def mapped(self, subject: bytes) -> bytes:
        """Return where a message goes by the account's mappings."""
        return subject if self.space is None else self.space.mapped(subject)

    # ---- what may not be -----------------------------------------------------------------------

    def wish(self, account: bytes, wish: Wish, weight: int, origin: bytes) -> None:
        """Take what the other side wants; our own mark that comes back shows a loop."""
        subject, queue = wish
        if self.space is None:
            return
        if subject.startswith(LOOP_PREFIX):
            if subject == self._leafs.loop_mark(self.space.name):
                self._looped(tell=True)
                return
        elif weight and self._is_forbidden(subject, queue):
            self.delay = VIOLATION_DELAY
            self.end(errors.subscription_violation(subject, b""), Closed.PROTOCOL)
            return
        super().wish(account, wish, weight, self.cluster)

    def _is_forbidden(self, subject: bytes, queue: bytes) -> bool:
        """Whether a leaf asks for a subject that it may not hear; to a hub we just do not send."""
        if self.kind is LinkKind.SPOKE or b"*" in subject or b">" in subject:
            return False
        return not self.rules.outgoing.permits(subject.decode("utf-8", "surrogateescape"))

    def trespass(self, subject: bytes) -> None:
        """Close a leaf that sends what it may not; what a hub sends so is dropped."""
        if self.kind is LinkKind.HUB:
            self.end(errors.publish_violation(subject), Closed.PROTOCOL)

    def err(self, text: str) -> None:
        """Take the hub's complaint; some say that trying again soon is no use."""
        super().err(text)
        if "Loop detected" in text:
            self._looped(tell=False)
        elif _SAME_CLUSTER in text or "minimum version" in text:
            self.delay = SAME_CLUSTER_DELAY
        elif "Permissions Violation" in text:
            self.delay = VIOLATION_DELAY

    def _looped(self, *, tell: bool) -> None:
        self.delay = LOOP_DELAY
        account = self.space.name if self.space is not None else ""
        text = (
            f'Loop detected for leafnode account="{account}". '
            f"Delaying attempt to reconnect for {LOOP_DELAY:g}s"
        )
        if tell:
            self.end(text, Closed.PROTOCOL)
        else:
            log.error("%s: %s", self.label, text)
            self.hub.close_connection(self.cid, Closed.PROTOCOL)

    def closed(self, reason: int) -> None:
        """Forget it; a remote is called again."""
        self.was_open = self.is_open
        super().closed(reason)
        self.gone.set()
        self._leafs.closed(self)

    @property
    def label(self) -> str:
        """How the log names it."""
        return f"leafnode {self.cid} {self.remote.name or self.remote.peer}"


def hub_rules(permissions: Permissions, deny: list[str] | None) -> LinkRules:
    """Return what a leaf's user may do, seen from the hub; ``deny`` is what the leaf declines."""
    heard = with_denied(permissions.subscribe, deny or ())
    return LinkRules(permissions.publish, permissions.publish, heard)


def spoke_rules(dialled: "LeafRemote", said: LinkInfo) -> LinkRules:
    """Return what the hub lets us do, and what our own remote declines."""
    incoming = with_denied(_rule(said.imports), dialled.deny_imports)
    outgoing = with_denied(_rule(said.exports), dialled.deny_exports)
    return LinkRules(incoming, incoming, outgoing)


def with_denied(rule: Rule, patterns: "tuple[str, ...] | list[str]") -> Rule:
    """Return a rule that denies more."""
    try:
        more = tuple(SubjectRule.parse(text, queues=False) for text in patterns)
    except BadPermission:
        more = (SubjectRule.parse(">", queues=False),)  # what cannot be read lets nothing pass
    return Rule(rule.allow, (*rule.deny, *more))


def _rule(said: LinkRule | None) -> Rule:
    if said is None:
        return Rule()
    try:
        return Rule.of(said.allow, said.deny or (), queues=False)
    except BadPermission:
        return Rule.of((), (), queues=False)


def rule_told(rule: Rule) -> LinkRule | None:
    """Return a rule as INFO tells it, None where it lets all pass."""
    if rule.allow is None and not rule.deny:
        return None
    allow = None if rule.allow is None else [entry.pattern for entry in rule.allow]
    return LinkRule(allow, [entry.pattern for entry in rule.deny] or None)
