"""The system account's view of the server: monitoring's answers, asked for by messages."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from millstream.clock import Clock
from millstream.errors import BadRequest
from millstream.monitor import accountz, connz, health, jsz, links, machine, subsz, varz
from millstream.monitor.facts import Facts
from millstream.nats.sessions import Sessions
from millstream.nats.system.account_requests import Endpoint
from millstream.nats.system.system import System, basic_statsz
from millstream.nats.system.system_requests import Order
from millstream.server.about import label
from millstream.server.options.options import Options
from millstream.wire.times import rfc3339

_Shape = TypeVar("_Shape")
_STATES = ("open", "closed", "all")


class _Connz(msgspec.Struct):
    sort: str = ""
    auth: bool = False
    subscriptions: bool = False
    subscriptions_detail: bool = False
    offset: int = 0
    limit: int = 0
    cid: int = 0
    state: int = 0
    user: str = ""
    acc: str = ""
    mqtt_client: str = ""
    filter_subject: str = ""


class _Subsz(msgspec.Struct):
    offset: int = 0
    limit: int = 0
    subscriptions: bool = False
    account: str = ""
    acc: str = ""
    test: str = ""


class _Jsz(msgspec.Struct):
    account: str = ""
    acc: str = ""
    accounts: bool = False
    streams: bool = False
    consumer: bool = False
    config: bool = False
    raft: bool = False
    offset: int = 0
    limit: int = 0


class _Accountz(msgspec.Struct):
    account: str = ""


class _Linkz(msgspec.Struct):
    subscriptions: bool = False
    subscriptions_detail: bool = False
    account: str = ""


class _Healthz(msgspec.Struct):
    enabled_only: bool = msgspec.field(default=False, name="js-enabled-only")
    server_only: bool = msgspec.field(default=False, name="js-server-only")
    account: str = ""
    stream: str = ""
    consumer: str = ""
    details: bool = False


def system_of(
    sessions: Sessions,
    clock: Clock,
    facts: Facts,
    options: Options,
    orders: Mapping[str, Order] | None = None,
) -> System:
    """Connect the system account to what monitoring knows."""

    def statsz() -> dict[str, Any]:
        return {
            "start": rfc3339(facts.started_ns),
            "mem": machine.resident_bytes(),
            "cores": machine.cores(),
            "cpu": facts.cpu(),
            **basic_statsz(sessions, sessions.reception.accounts),
            **({"jetstream": varz.jetstream(facts)} if facts.jetstream is not None else {}),
        }

    system = System(sessions, clock, statsz=statsz, endpoints=endpoints_of(facts), orders=orders)
    label(system.card, options)
    return system


def endpoints_of(facts: Facts) -> dict[str, Endpoint]:
    """Return monitoring's endpoints by the names that requests have for them."""
    return {
        "VARZ": lambda _: varz.describe(facts),
        "CONNZ": lambda asked: connz.describe(facts, _connz(_read(asked, _Connz))),
        "SUBSZ": lambda asked: subsz.describe(facts, _subsz(_read(asked, _Subsz))),
        "ACCOUNTZ": lambda asked: accountz.describe(facts, _read(asked, _Accountz).account),
        "JSZ": lambda asked: jsz.describe(facts, _jsz(_read(asked, _Jsz))),
        "HEALTHZ": lambda asked: _health(facts, _healthz(_read(asked, _Healthz))),
        "ROUTEZ": lambda asked: links.describe_routes(facts, _subs(asked)),
        "LEAFZ": lambda asked: links.describe_leafs(facts, _subs(asked)),
        "GATEWAYZ": lambda _: links.describe_gateways(facts),
        "EXPVARZ": lambda _: {"memstats": {"Sys": machine.resident_bytes()}, "cmdline": []},
        # Queues between goroutines, Raft groups and Go profiles: there are none here.
        "IPQUEUESZ": lambda _: {},
        "RAFTZ": lambda _: {},
        "PROFILEZ": lambda _: {"error": "there is no Go program to profile"},
    }


def _subs(asked: dict[str, Any]) -> dict[str, str]:
    """Return what a request for links asks, as a URL would say it."""
    wanted = _read(asked, _Linkz)
    subs = "detail" if wanted.subscriptions_detail else "1" if wanted.subscriptions else ""
    found = {"subs": subs, "acc": wanted.account}
    return {name: value for name, value in found.items() if value}


def _read(asked: dict[str, Any], shape: type[_Shape]) -> _Shape:
    try:
        return msgspec.convert(asked, shape)
    except msgspec.ValidationError as error:
        raise BadRequest(f"cannot read the request: {error}") from error


def _health(facts: Facts, options: health.HealthQuery) -> dict[str, Any]:
    """Return how the server is; a message has no status line, so the code stands beside it."""
    code, told = health.describe(facts, options)
    return {"status": told["status"], "status_code": code, **told}


def _connz(asked: _Connz) -> connz.ConnzQuery:
    if not 0 <= asked.state < len(_STATES):
        raise BadRequest("state is 0 for open, 1 for closed, 2 for all connections")
    return connz.ConnzQuery(
        sort=asked.sort,
        auth=asked.auth,
        subs=asked.subscriptions or asked.subscriptions_detail,
        subs_detail=asked.subscriptions_detail,
        offset=asked.offset,
        limit=asked.limit,
        cid=asked.cid,
        state=_STATES[asked.state],
        user=asked.user,
        acc=asked.acc,
        mqtt_client=asked.mqtt_client,
        filter_subject=asked.filter_subject,
    )


def _subsz(asked: _Subsz) -> subsz.SubszQuery:
    account = asked.acc or asked.account
    return subsz.SubszQuery(asked.subscriptions, asked.offset, asked.limit, asked.test, account)


def _jsz(asked: _Jsz) -> jsz.JszQuery:
    return jsz.JszQuery(
        asked.acc or asked.account,
        asked.accounts,
        asked.streams,
        asked.consumer,
        asked.config,
        asked.raft,
        asked.offset,
        asked.limit,
    )


def _healthz(asked: _Healthz) -> health.HealthQuery:
    return health.HealthQuery(
        asked.server_only,
        asked.enabled_only,
        asked.account,
        asked.stream,
        asked.consumer,
        asked.details,
    )
