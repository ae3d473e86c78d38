"""Who may ask what over NATS, written down by hand from docs/reference/security.md.

A row's answer is that to the user ``all`` of account A, who may do everything there. The others:

``denied``    may ask as ``all`` does, but for records: it must not hear log.secret
``nojs``, ``listener``, ``speaker``, ``puller``, ``answerer``
              may not publish to the API: a violation
``elsewhere`` asks in its own account, which has JetStream and no streams
``storeless`` asks in an account without JetStream
``sys``       asks in the system account, which has none either
"""

import json
from collections.abc import Iterator
from typing import NamedTuple

Answer = int | str  # a code, or: answered, violation, nobody (listens)

KEPT_OUT = ("nojs", "listener", "speaker", "puller", "answerer")


class NatsRow(NamedTuple):
    """One request, and what each user is answered."""

    operation: str  # as in the server's own table, or its pattern
    subject: str
    everything: Answer = "answered"  # to ``all``
    denied: Answer | None = None  # None: as ``all``
    kept_out: Answer = "violation"
    puller: Answer | None = None  # None: as the others who are kept out
    elsewhere: Answer = 404
    storeless: Answer = 503
    sys: Answer = 503
    nojs: Answer | None = None
    body: bytes = b""
    changes: bool = False

    def expected(self, who: str) -> Answer:
        """Return what somebody is answered."""
        if who == "all":
            return self.everything
        if who == "denied":
            return self.everything if self.denied is None else self.denied
        if who == "nojs" and self.nojs is not None:
            return self.nojs
        if who == "puller" and self.puller is not None:
            return self.puller
        if who in KEPT_OUT:
            return self.kept_out
        return {"elsewhere": self.elsewhere, "storeless": self.storeless, "sys": self.sys}[who]


def _json(**value: object) -> bytes:
    return json.dumps(value).encode()


def _api(
    operation: str, arguments: str = "", everything: Answer = "answered", **more: object
) -> NatsRow:
    subject = f"$JS.API.{operation}" + (f".{arguments}" if arguments else "")
    return NatsRow(operation, subject, everything, **more)  # type: ignore[arg-type]


INBOX = "_INBOX.matrix"
# Where an account has no such stream, nobody listens for these.
AWAY: dict[str, Answer] = {"elsewhere": "nobody", "storeless": "nobody", "sys": "nobody"}

JETSTREAM = [
    _api("INFO", elsewhere="answered"),
    _api("STREAM.CREATE", "NEW", body=_json(name="NEW"), elsewhere="answered", changes=True),
    _api(
        "STREAM.UPDATE",
        "LOG",
        body=_json(name="LOG", subjects=["log.>"], allow_direct=True, allow_msg_schedules=True),
    ),
    _api("STREAM.DELETE", "victim", changes=True),
    _api("STREAM.INFO", "LOG"),
    _api("STREAM.NAMES", elsewhere="answered"),
    _api("STREAM.LIST", elsewhere="answered"),
    _api("STREAM.PURGE", "victim"),
    _api("STREAM.MSG.GET", "LOG", body=_json(seq=1), denied="violation"),
    _api("STREAM.MSG.DELETE", "victim", 500, body=_json(seq=999)),
    _api(*("STREAM.SNAPSHOT", "LOG"), body=_json(deliver_subject=INBOX), denied="violation"),
    _api("STREAM.RESTORE", "LOG", 400, body=_json(config={"name": "LOG"}), elsewhere="answered"),
    _api("STREAM.LEADER.STEPDOWN", "LOG", 503, elsewhere=503),
    _api("STREAM.PEER.REMOVE", "LOG", 503, elsewhere=503),
    _api("STREAM.PEER.EVACUATE", "LOG", 503, elsewhere=503),
    _api("STREAM.CANCEL_MOVE", "LOG", 503, elsewhere=503),
    _api(
        "CONSUMER.DURABLE.CREATE",
        "LOG.new",
        body=_json(stream_name="LOG", config={"durable_name": "new", "ack_policy": "explicit"}),
    ),
    _api(
        "CONSUMER.CREATE", "LOG", body=_json(stream_name="LOG", config={"ack_policy": "explicit"})
    ),
    _api(
        "CONSUMER.CREATE",
        "LOG.new.log.open",
        body=_json(
            stream_name="LOG",
            config={"name": "new", "ack_policy": "explicit", "filter_subject": "log.open"},
        ),
    ),
    _api(
        *("CONSUMER.CREATE", "LOG.buried"),
        denied=403,
        body=_json(
            stream_name="LOG",
            config={
                "name": "buried",
                "ack_policy": "explicit",
                "max_deliver": 1,
                "metadata": {"millstream.dead_letter": "letters"},
            },
        ),
    ),
    _api("CONSUMER.INFO", "LOG.all"),
    _api("CONSUMER.NAMES", "LOG"),
    _api("CONSUMER.LIST", "LOG"),
    _api("CONSUMER.PAUSE", "LOG.all", body=_json(pause_until="2020-01-01T00:00:00Z")),
    _api("CONSUMER.UNPIN", "LOG.all", 400, body=_json(group="g")),
    _api("CONSUMER.RESET", "LOG.all"),
    _api("CONSUMER.LEADER.STEPDOWN", "LOG.all", 503, elsewhere=503),
    _api("CONSUMER.DELETE", "LOG.new", changes=True, denied=404),
    _api(
        "CONSUMER.MSG.NEXT",
        "LOG.all",
        body=_json(no_wait=True, batch=1),
        puller="answered",
        denied="silence",
        **AWAY,
    ),
    _api("DIRECT.GET", "LOG", body=_json(seq=1), denied="violation", **AWAY),
    _api("DIRECT.GET", "LOG.log.open", **AWAY),
    _api("DIRECT.GET", "LOG.log.secret", denied="violation", **AWAY),
    NatsRow("$JS.ACK.>", "$JS.ACK.LOG.all.1.1.1.1.0", puller="answered", **AWAY),
]

MILLSTREAM = [
    NatsRow(
        f"$MILLSTREAM.API.{what}.>",
        f"$MILLSTREAM.API.{what}.LOG",
        told,
        denied,
        body=body,
        storeless="nobody",
        sys="nobody",
    )
    for what, told, denied, body in (
        ("PLAN", "answered", None, b""),
        ("READ", "answered", None, _json(from_seq=1, to_seq=9)),
        ("HOLD", 400, "violation", b"{}"),
        ("STAGE", 400, None, b""),
        ("COMMIT", 400, None, b"{}"),
        ("ABORT", 400, None, b"{}"),
    )
]

# What only the system account may ask; elsewhere nobody listens there.
QUESTIONS = (
    *("IDZ", "STATSZ", "VARZ", "CONNZ", "SUBSZ", "ACCOUNTZ", "JSZ", "HEALTHZ", "ROUTEZ", "LEAFZ"),
    *("GATEWAYZ", "EXPVARZ", "IPQUEUESZ", "RAFTZ", "PROFILEZ"),
)
OWN_ACCOUNT = (
    "$SYS.REQ.ACCOUNT.PING.CONNZ",
    "$SYS.REQ.SERVER.PING.CONNZ",
    "$SYS.REQ.ACCOUNT.PING.STATZ",
)


def _system(
    subject: str, told: Answer = "answered", body: bytes = b"", operation: str = ""
) -> NatsRow:
    own = subject in OWN_ACCOUNT or subject == "$SYS.REQ.USER.INFO"
    others: Answer = "answered" if own else "nobody"
    return NatsRow(
        operation or subject,
        subject,
        others,
        nojs=others,
        elsewhere=others,
        storeless=others,
        sys=told,
        body=body,
    )


def system_rows(server_id: str) -> Iterator[NatsRow]:
    """Return what is asked about the server and its accounts."""
    yield _system("$SYS.REQ.USER.INFO")
    yield _system("$SYS.REQ.SERVER.PING")
    for what in QUESTIONS:
        yield _system(f"$SYS.REQ.SERVER.PING.{what}")
        yield _system(f"$SYS.REQ.SERVER.{server_id}.{what}")
    for order in ("RELOAD", "KICK", "LDM"):
        yield _system(f"$SYS.REQ.SERVER.{server_id}.{order}", 500, _json(cid=999999))
    for what in ("CONNZ", "SUBSZ", "LEAFZ", "JSZ", "INFO", "STATZ", "CONNS"):
        yield _system(f"$SYS.REQ.ACCOUNT.A.{what}", operation=f"$SYS.REQ.ACCOUNT.*.{what}")
    for subject in OWN_ACCOUNT:
        yield _system(subject)
    yield _system("$SYS.REQ.ACCOUNT.NSUBS", body=_json(acc="A", subject="log.>"))
    yield _system("$SYS.DEBUG.SUBSCRIBERS", body=b"log.>")
    for subject in ("$SYS.REQ.ACCOUNT.A.CLAIMS.UPDATE", "$SYS.ACCOUNT.A.CLAIMS.UPDATE"):
        yield _system(subject, 500, operation=subject.replace(".A.", ".*."))


def everything(server_id: str) -> list[NatsRow]:
    """Return all rows."""
    return [*JETSTREAM, *MILLSTREAM, *system_rows(server_id)]
