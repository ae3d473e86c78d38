"""Account: a subject space of its own, what it offers to others, takes from them and may use.

Values only, whoever wrote them: a configuration file or an operator's JWTs.
"""

from collections.abc import Iterable
from collections.abc import Mapping as Mapping_
from enum import Enum

import msgspec

from millstream.subjects.subject import has_wildcard, is_subset, overlap
from millstream.subjects.transform import SubjectTransform

GLOBAL_ACCOUNT = "$G"
SYSTEM_ACCOUNT = "$SYS"
RESPONSE_SECONDS = 120.0


class ResponseType(Enum):
    """How many messages answer one request."""

    SINGLETON = "singleton"
    STREAM = "stream"
    CHUNKED = "chunked"


class AccountLimits(msgspec.Struct, frozen=True):
    """What an account's clients may take together; below 0: no limit."""

    max_connections: int = -1
    max_subscriptions: int = -1
    max_payload: int = -1
    max_leafnodes: int = -1


class StreamLimits(msgspec.Struct, frozen=True):
    """What an account may use of JetStream.

    Below 0: no limit. A storage of 0 is none at all; any other 0 sets no limit either.
    """

    max_memory: int = -1
    max_storage: int = -1
    max_streams: int = -1
    max_consumers: int = -1
    max_ack_pending: int = -1
    memory_max_stream_bytes: int = -1
    storage_max_stream_bytes: int = -1
    max_bytes_required: bool = False


class Latency(msgspec.Struct, frozen=True):
    """Where a service's response times are told, and of how many requests in a hundred.

    ``sampling`` of 0 means of those whose trace headers ask for it.
    """

    subject: str
    sampling: int = 100


class TraceTerms(msgspec.Struct, frozen=True):
    """Where messages that carry a ``traceparent`` are traced to, and how many in a hundred."""

    dest: str
    sampling: int = 100


class Export(msgspec.Struct, frozen=True):
    """Subjects that others may import; ``accounts`` of None means everybody."""

    subject: str
    service: bool = False
    accounts: tuple[str, ...] | None = None
    response_type: ResponseType = ResponseType.SINGLETON
    response_seconds: float = RESPONSE_SECONDS
    account_token_position: int = 0
    latency: Latency | None = None
    allow_trace: bool = False  # traces of others go on to a service

    def is_open_to(self, importer: str, subject: str) -> bool:
        """Say whether ``importer`` may take ``subject``, which this export covers."""
        position = self.account_token_position
        if position > 0:
            tokens = subject.split(".")
            return position <= len(tokens) and tokens[position - 1] == importer
        return self.accounts is None or importer in self.accounts


class Import(msgspec.Struct, frozen=True):
    """Subjects of another account under names of our own; ``prefix`` is for streams only."""

    account: str
    subject: str
    service: bool = False
    to: str = ""
    prefix: str = ""
    share: bool = False
    allow_trace: bool = False  # traces of others go on to our clients

    @property
    def local(self) -> str:
        """The pattern under which our clients know it."""
        if self.to:
            return _placeholders_to_stars(self.to)
        if self.prefix:
            return f"{self.prefix.removesuffix('.')}.{self.subject}"
        return self.subject

    def outward(self) -> SubjectTransform | None:
        """From our name of a service to its owner's; None when both are the same."""
        if self.local == self.subject:
            return None
        if not has_wildcard(self.subject):
            return SubjectTransform(self.local, self.subject)
        return SubjectTransform(self.local, self._owners_template())

    def _owners_template(self) -> str:
        """Number the owner's wildcards in the order in which our own name mentions them."""
        numbers = [token[1:] for token in self.to.split(".") if _is_placeholder(token)]
        if not numbers:
            return numbered(self.subject)
        places = {int(number): at for at, number in enumerate(numbers, 1)}
        made, star = [], 0
        for token in self.subject.split("."):
            if token == "*":
                star += 1
                made.append(f"${places[star]}")
            else:
                made.append(token)
        return ".".join(made)

    def inward(self) -> SubjectTransform | None:
        """From the owner's name of a stream to ours; None when both are the same."""
        if self.local == self.subject:
            return None
        if self.to:
            names_them = any(map(_is_placeholder, self.to.split(".")))
            template = self.to if names_them else numbered(self.to)
        else:
            template = numbered(self.local)
        return SubjectTransform(self.subject, template)


class Destination(msgspec.Struct, frozen=True):
    """Where a mapping sends ``weight`` percent of the messages."""

    subject: str
    weight: int = 100


class Mapping(msgspec.Struct, frozen=True):
    """Messages published to ``source`` go to one of ``destinations`` instead."""

    source: str
    destinations: tuple[Destination, ...]


class Account(msgspec.Struct, frozen=True):
    """One account as it was configured."""

    name: str
    label: str = ""  # what people call it, where the name is a key
    exports: tuple[Export, ...] = ()
    imports: tuple[Import, ...] = ()
    mappings: tuple[Mapping, ...] = ()
    limits: AccountLimits = AccountLimits()
    jetstream: bool = False
    stream_limits: StreamLimits = StreamLimits()
    # Limits by number of replicas: "R1" holds for the streams of one server, others for none.
    tiers: tuple[tuple[str, StreamLimits], ...] = ()
    trace: TraceTerms | None = None

    @property
    def shown_name(self) -> str:
        """What people call it."""
        return self.label or self.name

    def offer(self, wanted: Import, importer: str) -> Export | None:
        """Return the export that lets ``importer`` take this, None when there is none."""
        exports = [export for export in self.exports if export.service == wanted.service]
        same = [export for export in exports if export.subject == wanted.subject]
        wider = [export for export in exports if is_subset(wanted.subject, export.subject)]
        return next(
            (e for e in (same[-1:] or wider) if e.is_open_to(importer, wanted.subject)), None
        )


def accounts_with_defaults(
    accounts: Iterable[Account], *, system: str = SYSTEM_ACCOUNT, jetstream: bool = True
) -> tuple[Account, ...]:
    """Add the accounts that every server has: the global one, and the system's own.

    The global one has JetStream by itself only where no other account could.
    """
    listed = list(accounts)
    names = {account.name for account in listed}
    if GLOBAL_ACCOUNT not in names:
        listed.append(Account(GLOBAL_ACCOUNT, jetstream=jetstream and names <= {system}))
    if system and system not in names:
        listed.append(Account(system))
    return tuple(listed)


def goes_round(item: Import, importer: str, accounts: Mapping_[str, Account]) -> bool:
    """Say whether what ``importer`` takes comes, by others' imports, from ``importer`` itself."""
    return _goes_round(item, accounts, {importer})


def _goes_round(item: Import, accounts: Mapping_[str, Account], seen: set[str]) -> bool:
    owner = accounts.get(item.account)
    if owner is None:
        return False
    if owner.name in seen:
        return True
    further = [
        other
        for other in owner.imports
        if other.service == item.service and overlap(item.subject, other.local)
    ]
    return any(_goes_round(other, accounts, seen | {owner.name}) for other in further)


def _is_placeholder(token: str) -> bool:
    return token[:1] == "$" and token[1:].isdecimal()


def _placeholders_to_stars(subject: str) -> str:
    return ".".join("*" if _is_placeholder(token) else token for token in subject.split("."))


def numbered(subject: str) -> str:
    """Number the wildcards: ``a.*.*`` becomes ``a.$1.$2``."""
    made, number = [], 0
    for token in subject.split("."):
        number += token == "*"
        made.append(f"${number}" if token == "*" else token)
    return ".".join(made)
