"""Who may do what over HTTP, written down by hand from docs/reference/security.md.

A row names those who are carried out, and with which status. Everybody else who is known gets 403,
and who is not known gets 401. The strangers' user of another account, ``elsewhere``, may ask for
everything, but of its own account, where nothing is: its status stands apart.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from matrix_site import UPGRADE

KNOWN = (
    "read write delete admin worker full other "
    "all denied nojs listener speaker puller answerer elsewhere storeless sys"
)
EVERYBODY = "nobody unknown " + KNOWN
# Of users, those may read the topics ``log`` and ``queue`` who may subscribe to their names; write
# to them who may publish there; change and delete them who may ask JetStream for it.
READ = "read worker full all denied nojs"
WRITE = "write worker full all denied nojs"
DELETE = "delete full all denied"
ADMIN = "admin full all denied"
WORK = "worker full all denied nojs"
# Users of an account see what is theirs in lists; keys need the scope.
LISTS = "read worker full other all denied nojs listener speaker puller answerer storeless sys"
SERVER = "read worker full sys"  # the whole server: no prefixes, or the system account
SPEAK = "write worker full all denied nojs speaker"  # who may publish to log.open
NOTHING_THERE = {"storeless": 404, "sys": 404}  # in their own accounts

RECORDS = {"records": [{"data": "plain"}]}
MESSAGE = {"subject": "log.open", "data": 1}
JOBS: dict[str, Any] = {"node": "w", "seqs": [1]}


class HttpRow(NamedTuple):
    """One operation on one thing, and whom it is carried out for."""

    method: str
    pattern: str  # as in the table of routes
    allowed: str
    status: int = 200
    body: object = None
    target: str = ""  # the pattern filled in, where that is not by the names below
    elsewhere: int = 404
    changes: bool = False  # what it does must be undone
    headers: Mapping[str, str] = MappingProxyType({})
    odd: Mapping[str, int] = MappingProxyType({})  # who gets another status


FILLED = {"{topic}": "log", "{router}": "way", "{consumer}": "reader", "{cid}": "999999"}
TOPIC = "/v0/topics/{topic}"
ROUTER = "/v0/routers/{router}"
CONSUMER = TOPIC + "/consumers/{consumer}"
EVENTS = {"accept": "text/event-stream"}
ROWS = [
    # -- open to all --------------------------------------------------------------------------
    HttpRow("GET", "/", EVERYBODY, elsewhere=200),
    HttpRow("GET", "/ui/{file}", EVERYBODY, 404, target="/ui/none", elsewhere=404),
    HttpRow("GET", "/ui/{folder}/{file}", EVERYBODY, 404, target="/ui/none/none", elsewhere=404),
    HttpRow("GET", "/openapi.json", EVERYBODY, elsewhere=200),
    HttpRow("GET", "/monitoring", EVERYBODY, elsewhere=200),
    HttpRow("GET", "/v0/health", EVERYBODY, elsewhere=200),
    HttpRow("GET", "/v0/ready", EVERYBODY, elsewhere=200),
    HttpRow("GET", "/readyz", EVERYBODY, elsewhere=200),
    HttpRow("GET", "/healthz", EVERYBODY, elsewhere=200),
    HttpRow("GET", "/v0/login", EVERYBODY, elsewhere=200),
    # -- any credential -----------------------------------------------------------------------
    HttpRow("GET", "/v0/whoami", KNOWN, elsewhere=200),
    HttpRow("GET", "/v0/ws", KNOWN, 101, headers=UPGRADE, elsewhere=101),
    # -- topics -------------------------------------------------------------------------------
    HttpRow("GET", "/v0/topics", LISTS, elsewhere=200),
    HttpRow("GET", "/v0/metrics", LISTS, elsewhere=200),
    HttpRow("GET", TOPIC, READ),
    HttpRow("PUT", TOPIC, ADMIN, body={}, elsewhere=201, changes=True),
    HttpRow("DELETE", TOPIC, DELETE, elsewhere=200, changes=True),
    HttpRow("POST", TOPIC, WRITE, body=RECORDS, elsewhere=201, changes=True),
    HttpRow("POST", TOPIC + "/diff", READ, body={}),
    HttpRow("POST", TOPIC + "/browse", READ, body={}),
    HttpRow("POST", TOPIC + "/delete", DELETE, body={"before_seq": 1}),
    HttpRow("GET", TOPIC + "/tail", READ, headers=EVENTS),
    HttpRow("GET", TOPIC + "/plan", READ),
    HttpRow("GET", TOPIC + "/frames", READ, target="/v0/topics/log/frames?from_seq=1&to_seq=1"),
    HttpRow("POST", TOPIC + "/stage", WRITE, 400, body=b"x", target="/v0/topics/log/stage"),
    HttpRow("POST", TOPIC + "/commit", WRITE, 400, body={}),
    HttpRow("POST", TOPIC + "/abort", WRITE, 400, body={}),
    HttpRow("POST", TOPIC + "/hold", READ, 400, body={}),
    HttpRow("POST", "/v0/watch", READ, body={"topics": {"log": {}}}),
    HttpRow("GET", "/v0/watch/{wid}", EVERYBODY, 404, target="/v0/watch/wid_none", headers=EVENTS),
    # -- queues -------------------------------------------------------------------------------
    HttpRow("POST", TOPIC + "/claim", WORK, body={"node": "w"}, target="/v0/topics/queue/claim"),
    HttpRow("POST", TOPIC + "/ack", WRITE, body=JOBS, target="/v0/topics/queue/ack"),
    HttpRow("POST", TOPIC + "/nack", WRITE, body=JOBS, target="/v0/topics/queue/nack"),
    HttpRow(
        *("POST", TOPIC + "/extend", WRITE),
        body=JOBS | {"lease_ms": 1000},
        target="/v0/topics/queue/extend",
    ),
    HttpRow("GET", TOPIC + "/work", WORK, target="/v0/topics/queue/work?node=w", headers=EVENTS),
    HttpRow(
        *("POST", TOPIC + "/redrive", "full all denied"),
        body={},
        target="/v0/topics/letters/redrive",
    ),
    # -- routers ------------------------------------------------------------------------------
    HttpRow("GET", "/v0/routers", LISTS, elsewhere=200),
    HttpRow("GET", ROUTER, READ, odd=NOTHING_THERE),
    HttpRow(
        *("PUT", ROUTER, ADMIN),
        body={"source": "log", "dest": "copy"},
        elsewhere=201,
        changes=True,
    ),
    HttpRow(
        *("DELETE", ROUTER, DELETE),
        elsewhere=200,
        changes=True,
        odd={"storeless": 200, "sys": 200},  # deleted: false
    ),
    HttpRow("GET", "/v0/flow", LISTS, elsewhere=200),
    HttpRow("GET", "/v0/pipelines", LISTS, elsewhere=200),
    # -- consumers ----------------------------------------------------------------------------
    HttpRow("GET", "/v0/consumers", LISTS, elsewhere=200),
    HttpRow("GET", TOPIC + "/consumers", READ),
    HttpRow("GET", CONSUMER, READ),
    HttpRow("PUT", CONSUMER, ADMIN, body={}),
    HttpRow("DELETE", CONSUMER, DELETE, changes=True),
    HttpRow("POST", CONSUMER + "/pause", ADMIN, body={"seconds": 0}),
    HttpRow("POST", CONSUMER + "/reset", ADMIN, body={}),
    # -- messages -----------------------------------------------------------------------------
    HttpRow("POST", "/v0/publish", SPEAK + " storeless sys", body=MESSAGE, elsewhere=200),
    HttpRow("POST", "/v0/request", SPEAK, body=MESSAGE, odd=NOTHING_THERE),
    # -- the server ---------------------------------------------------------------------------
    HttpRow("GET", "/v0/feed", LISTS, headers=EVENTS, elsewhere=200),
    HttpRow("GET", "/v0/feed/past", LISTS, elsewhere=200),
    HttpRow("GET", "/v0/access", "admin full sys", elsewhere=403),
    HttpRow("DELETE", "/connz/{cid}", "admin full sys", 404, elsewhere=403),
    *(
        HttpRow("GET", path, SERVER, elsewhere=403)
        for path in (
            *("/varz", "/jsz", "/connz", "/accountz", "/accstatz", "/subsz", "/subscriptionsz"),
            *("/routez", "/leafz", "/gatewayz", "/ipqueuesz", "/stacksz", "/metrics"),
        )
    ),
    HttpRow("GET", "/raftz", SERVER, 404, elsewhere=403),
]


def of_prefix() -> Iterator[HttpRow]:
    """Return the rows about a topic again, for one of a name that the key ``other`` covers."""
    for row in ROWS:
        if (
            row.pattern.startswith(TOPIC)
            and "/topics/queue" not in row.target
            and "/topics/letters" not in row.target
        ):
            yield row._replace(
                allowed=row.allowed + " other",
                target=(row.target or row.pattern)
                .replace("/log/", "/{topic}/")
                .replace("{topic}", "other.log"),
            )


# The topic LOG captures log.>, of which log.secret is denied to ``denied``; ``listener`` may hear
# log.open alone. Deny wins: neither reads any of it, but for the two that answer in parts.
READ_LOG = "read worker full all nojs"
IN_PARTS = READ_LOG + " denied listener"
OF_LOG = {
    ("GET", TOPIC): READ_LOG,
    ("POST", TOPIC + "/diff"): READ_LOG,
    ("POST", TOPIC + "/browse"): READ_LOG,
    ("GET", TOPIC + "/tail"): READ_LOG,
    ("GET", TOPIC + "/plan"): IN_PARTS,
    ("GET", TOPIC + "/frames"): IN_PARTS,
    ("POST", TOPIC + "/hold"): READ_LOG,
    ("GET", TOPIC + "/consumers"): READ_LOG,
    ("POST", TOPIC): WRITE,
    ("POST", TOPIC + "/commit"): WRITE,
    ("POST", TOPIC + "/delete"): DELETE,
    ("PUT", TOPIC): ADMIN,
    ("DELETE", TOPIC): DELETE,
}


def of_captured() -> Iterator[HttpRow]:
    """Return rows for a topic that captures subjects of which some are denied to some."""
    for row in ROWS:
        allowed = OF_LOG.get((row.method, row.pattern))
        if allowed is not None:
            body = {"subjects": ["log.>"]} if row.method == "PUT" else row.body
            target = (row.target or row.pattern).replace("/log/", "/{topic}/")
            yield row._replace(allowed=allowed, body=body, target=target.replace("{topic}", "LOG"))


def everything() -> list[HttpRow]:
    """Return all rows."""
    return [*ROWS, *of_prefix(), *of_captured()]
