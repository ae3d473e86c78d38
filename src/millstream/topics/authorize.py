"""Authorizer: who is asking at the HTTP door, and may they? It runs before anything else does.

Two kinds of credential open it. An API key has scopes and a list of name prefixes. A user of the
NATS door comes by HTTP Basic (or with the server's token as bearer) and keeps the permissions that
it has there. Where neither is configured the door is open.
"""

import base64
import binascii
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from urllib.parse import unquote

import msgspec

from millstream.accounts.account import GLOBAL_ACCOUNT
from millstream.accounts.api_keys import ApiKey, ApiKeyRing, digest_of
from millstream.accounts.credentials import Credentials, Identity, Presented
from millstream.accounts.permissions import Rule
from millstream.accounts.rights import Rights
from millstream.accounts.sight import Sight, sees_some
from millstream.clock import Clock
from millstream.errors import Forbidden, Unauthorized
from millstream.http.request import Caller, Request, Standing
from millstream.http.routes import NOWHERE, Route
from millstream.subjects.pattern_set import any_overlap
from millstream.topics.directory import check_name
from millstream.topics.limits.guesses import Guesses
from millstream.topics.limits.slots import Slots

PROBES = ("/v0/health", "/v0/ready", "/healthz", "/readyz")
WATCH = "/v0/watch/{wid}"
# A watch that nobody opened is 404 also for nobody, so its handler asks who it is.
NOBODY = Caller(key="nobody", scopes=frozenset())

_CHANGES = {  # what a user must be allowed to ask of JetStream for the same
    "delete": ("STREAM.DELETE", "STREAM.MSG.DELETE", "STREAM.PURGE"),
    "admin": ("STREAM.CREATE", "STREAM.UPDATE"),
}

SubjectsOf = Callable[[str, str], tuple[str, ...] | None]  # (account, stream) → what it may hold


class Users(msgspec.Struct, frozen=True):
    """The users of the NATS door, as they are now."""

    credentials: Callable[[], Credentials]
    subjects_of: SubjectsOf
    keeps_streams: Callable[[str], bool]  # whether an account may have any
    system_account: str = ""


class Offered(msgspec.Struct, frozen=True):
    """What a request presents: a bearer's word, or a user and password."""

    bearer: bytes = b""
    user: str = ""
    password: str = ""
    is_miswritten: bool = False  # a key as ``bearer``: the scheme is a word with a capital B


class Authorizer:
    """Finds the caller of each request, or raises; remembers who must hear of a revocation."""

    def __init__(
        self,
        keys: ApiKeyRing,
        users: Users,
        clock: Clock,
        *,
        probe_auth: bool = False,
        max_inflight_per_key: int = 1000,
    ) -> None:
        self._keys = keys
        self._users = users
        self._clock = clock
        self._probe_auth = probe_auth
        self._known = users.credentials()
        self._anyone = Caller()
        self._callers: dict[ApiKey, Caller] = {}
        self._users_standing = Standing()
        self._expiring: dict[tuple[str, int], Standing] = {}  # of users whose JWT ends
        self._inflight = Slots("max_inflight", per_key=max_inflight_per_key)
        self._guesses = Guesses(clock.monotonic)

    @property
    def required(self) -> bool:
        """Whether a caller must say who it is."""
        return self._keys.required or not self._users.credentials().open

    def __call__(self, request: Request, route: Route) -> Callable[[], None] | None:
        """Say who is asking, and refuse what they may not do; returns what frees their slot."""
        if not self.required:
            request.caller = self._anyone
            return None
        if self._is_open(route):
            return None
        offered = offered_by(request, route)
        if route.pattern == WATCH:
            request.caller = self._bound(request, offered)
            return self._inflight.take("" if request.caller is NOBODY else request.caller.key)
        scope = route.scope or _scope_of_nowhere(request, route)
        topic = request.params.get("topic") or _topic_of_nowhere(request, route)
        request.caller = self._caller(request, offered, scope, topic, parts=route.parts)
        leave = self._inflight.take(request.caller.key)
        try:
            self._check(request, route, scope, topic)
        except BaseException:
            leave()
            raise
        return leave

    def _check(self, request: Request, route: Route, scope: str, topic: str | None) -> None:
        check_scope(request.caller, scope)
        if topic is not None:
            check_name(topic, request.caller)
        if scope and route is not NOWHERE and not route.pattern.startswith("/v0/"):
            self._check_whole_server(request.caller)

    def renew(self) -> bool:
        """End the standing of whoever would not be let in as before; returns whether any was."""
        ended = [key for key in self._callers if key not in self._keys]
        for key in ended:
            self._callers.pop(key).standing.revoked = True
        changed = bool(ended)
        if self.required and not self._anyone.revoked:
            self._anyone.standing.revoked = changed = True
        elif not self.required and self._anyone.revoked:
            self._anyone = Caller()  # the door is open again
        if self._known is not self._users.credentials():
            self._known = self._users.credentials()
            self._users_standing.revoked = changed = True
            self._users_standing = Standing()
            for standing in self._expiring.values():
                standing.revoked = True
        now = self._clock.time_ns() / 1e9
        for who, standing in list(self._expiring.items()):
            if standing.revoked or who[1] <= now:
                standing.revoked = changed = True
                del self._expiring[who]
        return changed

    def _is_open(self, route: Route) -> bool:
        if route is NOWHERE or route.scope or route.believed:
            return False
        return not (self._probe_auth and route.pattern.endswith(PROBES))

    def _bound(self, request: Request, offered: Offered | None) -> Caller:
        """Return whose watch it may be; the session knows who opened it."""
        try:
            return self._caller(request, offered, "read", None)
        except Unauthorized:
            return NOBODY

    def _caller(
        self,
        request: Request,
        offered: Offered | None,
        scope: str,
        topic: str | None,
        *,
        parts: bool = False,
    ) -> Caller:
        if offered is not None:
            self._guesses.check(request.peer, offered)
        key = self._keys.find(offered.bearer) if offered is not None and offered.bearer else None
        if key is not None:
            self._guesses.right(offered)
            return self._key_caller(key)
        user = self._identify(offered, request.peer)
        if user is None:
            raise self._stranger(request, offered)
        self._guesses.right(offered)
        caller = self._user_caller(user, scope, topic)
        return self._in_parts(caller, user) if parts else caller

    def _stranger(self, request: Request, offered: Offered | None) -> Unauthorized:
        """Return why somebody is not let in; who offers wrong credentials waits for it."""
        wait = self._guesses.wrong(request.peer) if offered is not None else 0.0
        if offered is not None and offered.is_miswritten:
            return Unauthorized("write the scheme as Bearer: Authorization: Bearer <key>", wait)
        return Unauthorized("send a valid key as Authorization: Bearer, or log in as a user", wait)

    def _key_caller(self, key: ApiKey) -> Caller:
        known = self._callers.get(key)
        if known is None:
            # A name may be handed out again: only the same secret is the same holder.
            holder = f"key:{key.id}:{digest_of(key.digest).hex()}"
            known = Caller(key.account, key.prefixes, holder, key.scopes)
            self._callers[key] = known
        if key.account != GLOBAL_ACCOUNT and not self._users.keeps_streams(key.account):
            raise Forbidden("the account of this key has no streams")
        return known

    def _identify(self, offered: Offered | None, peer: str) -> Identity | None:
        credentials = self._users.credentials()
        if credentials.open or (offered is None and self._keys.required):
            return None  # where keys are handed out, a guest is nobody
        presented = Presented(address=peer, connection_type="HTTP")
        if offered is not None:
            bearer = offered.bearer.decode("utf-8", "surrogateescape")
            is_jwt = credentials.trust is not None  # one that its issuer lets anybody bear
            presented = Presented(
                user=offered.user,
                password=offered.password,
                token="" if is_jwt else bearer,
                jwt=bearer if is_jwt else "",
                address=peer,
                connection_type="HTTP",
            )
            if presented.nothing:
                return None
        return credentials.identify(presented, self._clock.time_ns() / 1e9)

    def _user_caller(self, user: Identity, scope: str, topic: str | None) -> Caller:
        rights = Rights(user.permissions)
        judge = partial(self._may, rights, user.account)
        scopes = set(scope.split("+")) if scope else set()
        if topic is not None and judge({"admin"}, topic):
            scopes.add("admin")  # a write may create its topic with a config
        if user.account == self._users.system_account or (
            user.account == GLOBAL_ACCOUNT and user.permissions.unlimited
        ):
            scopes.add("server")
        return Caller(
            user.account,
            key=f"user:{user.account}\0{user.name}",
            scopes=frozenset(scopes),
            covers=partial(judge, frozenset(scope.split("+")) if scope else frozenset()),
            standing=self._standing_of(user),
            narrowed=partial(self._user_caller, user),
            hears=partial(_hears, rights),
            says=partial(_says, rights),
            is_unlimited=user.permissions.unlimited,
        )

    def _in_parts(self, caller: Caller, user: Identity) -> Caller:
        """Return the caller as one who is answered with what it may read of a topic."""
        rule = user.permissions.subscribe
        reads_all = caller.covers
        assert reads_all is not None

        def covers(name: str) -> bool:
            if reads_all(name):
                return True
            subjects = self._users.subjects_of(user.account, name)
            kept = self._users.keeps_streams(user.account)
            return kept and subjects is not None and sees_some(rule, subjects[:-1] or subjects)

        def sees(name: str) -> Sight | None:
            return None if reads_all(name) else Sight(rule)

        return replace(caller, covers=covers, sees=sees)

    def _standing_of(self, user: Identity) -> Standing:
        if not user.expires:
            return self._users_standing
        return self._expiring.setdefault((user.name, user.expires), Standing())

    def _may(self, rights: Rights, account: str, scopes: Iterable[str], name: str) -> bool:
        """Say whether a user's permissions cover these scopes of a topic."""
        if not self._users.keeps_streams(account):
            return False
        subjects = self._users.subjects_of(account, name) or (name,)
        permissions = rights.permissions
        for scope in scopes:
            if scope == "read":
                # Records that HTTP wrote carry the stream's name; to deny that is enough.
                listed = subjects[:-1] or subjects
                if _denied(permissions.subscribe, subjects) or not all(
                    rights.may_subscribe(_bytes(subject), b"") for subject in listed
                ):
                    return False
                continue
            wanted = subjects
            if scope in _CHANGES:
                wanted = tuple(f"$JS.API.{request}.{name}" for request in _CHANGES[scope])
            if _denied(permissions.publish, (*wanted, *subjects)) or not all(
                rights.may_publish(_bytes(subject)) for subject in wanted
            ):
                return False
        return True

    @staticmethod
    def _check_whole_server(caller: Caller) -> None:
        """Refuse what tells of every account and stream to whoever may know only some."""
        if not caller.sees_server:
            raise Forbidden(
                "monitoring shows the whole server, and this credential may see only a part of it"
            )


def offered_by(request: Request, route: Route) -> Offered | None:
    """Return the credential of a request, None where there is none; two count as a wrong one."""
    given = [value for name, value in request.headers if name == b"authorization"]
    if len(given) > 1:
        return Offered()
    if given:
        return _of_header(given[0])
    if route.query_token and "token" in request.query:
        return Offered(bearer=_bytes(request.query["token"]))
    return None


def _of_header(value: bytes) -> Offered:
    scheme, _, rest = value.partition(b" ")
    if scheme == b"Bearer":
        return Offered(bearer=rest.strip(b" \t"))
    if scheme != b"Basic":
        return Offered(is_miswritten=scheme.lower() == b"bearer")
    try:
        user, colon, password = base64.b64decode(rest.strip(b" \t"), validate=True).partition(b":")
        if not colon:
            return Offered()
        return Offered(user=user.decode(), password=password.decode())
    except (binascii.Error, ValueError):
        return Offered()


def _scope_of_nowhere(request: Request, route: Route) -> str:
    """Return what an unknown operation would need: whoever lacks it learns no more than that."""
    parts = request.path.split("/")
    if route is not NOWHERE or parts[:2] != ["", "v0"] or len(parts) < 4:
        return ""
    if parts[2] == "routers":
        return "admin"
    return "write" if parts[2] == "topics" and len(parts) > 4 else ""


def _topic_of_nowhere(request: Request, route: Route) -> str | None:
    parts = request.path.split("/")
    if route is NOWHERE and parts[:3] == ["", "v0", "topics"] and len(parts) > 3:
        return unquote(parts[3], errors="surrogateescape")
    return None


def check_scope(caller: Caller, scope: str) -> None:
    """Refuse a caller that lacks a scope."""
    missing = [word for word in scope.split("+") if word and word not in caller.scopes]
    if missing:
        words = " and ".join(missing)
        raise Forbidden(f"this key lacks the scope {words}", {"scope": scope})


def _hears(rights: Rights, subject: str) -> bool:
    """Say whether a user may listen to all of a subject."""
    allowed = rights.may_subscribe(_bytes(subject), b"")
    return allowed and not _denied(rights.permissions.subscribe, (subject,))


def _says(rights: Rights, subject: str) -> bool:
    """Say whether a user may publish to a subject."""
    allowed = rights.may_publish(_bytes(subject))
    return allowed and not _denied(rights.permissions.publish, (subject,))


def _denied(rule: Rule, subjects: Iterable[str]) -> bool:
    """Say whether anything of these is denied: what a stream holds is not taken apart."""
    patterns = [entry.pattern for entry in rule.deny if not entry.queue]
    return any_overlap(patterns, tuple(subjects))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
