"""What requests to the system account may say, with the names and types of the reference."""

from collections.abc import Mapping

from millstream.wire.go_json import (
    BOOL,
    DURATION,
    INT,
    STRING,
    STRINGS,
    UINT64,
    GoType,
    Shape,
    Whole,
)

_SERVERS: dict[str, GoType] = {
    "server_name": STRING,
    "cluster": STRING,
    "host": STRING,
    "exact_match": BOOL,
    "tags": STRINGS,
    "domain": STRING,
}
_STATE = Whole("server.ConnState", INT.allowed)
_SORT = type(STRING)("server.SortOpt")
_WITH_SUBSCRIPTIONS: dict[str, GoType] = {"subscriptions": BOOL, "subscriptions_detail": BOOL}

SERVERS = Shape("EventFilterOptions", _SERVERS)


def _options(name: str, fields: Mapping[str, GoType] | None = None) -> Shape:
    return Shape(f"{name}EventOptions", {**(fields or {}), **_SERVERS})


# By the last word of the subject; each may also name the servers that it means.
OPTIONS = {
    "STATSZ": _options("Statsz"),
    "VARZ": _options("Varz"),
    "CONNZ": _options(
        "Connz",
        {
            **_WITH_SUBSCRIPTIONS,
            "sort": _SORT,
            "auth": BOOL,
            "offset": INT,
            "limit": INT,
            "cid": UINT64,
            "mqtt_client": STRING,
            "state": _STATE,
            "user": STRING,
            "acc": STRING,
            "filter_subject": STRING,
        },
    ),
    "SUBSZ": _options(
        "Subsz",
        {"offset": INT, "limit": INT, "subscriptions": BOOL, "account": STRING, "test": STRING},
    ),
    "ACCOUNTZ": _options("Accountz", {"account": STRING}),
    "JSZ": _options(
        "Jsz",
        {
            "account": STRING,
            "accounts": BOOL,
            "streams": BOOL,
            "consumer": BOOL,
            "direct_consumer": BOOL,
            "config": BOOL,
            "leader_only": BOOL,
            "offset": INT,
            "limit": INT,
            "raft": BOOL,
            "stream_leader_only": BOOL,
        },
    ),
    "HEALTHZ": _options(
        "Healthz",
        {
            "js-enabled": BOOL,
            "js-enabled-only": BOOL,
            "js-server-only": BOOL,
            "js-meta-only": BOOL,
            "account": STRING,
            "stream": STRING,
            "consumer": STRING,
            "details": BOOL,
        },
    ),
    "ROUTEZ": _options("Routez", _WITH_SUBSCRIPTIONS),
    "GATEWAYZ": _options(
        "Gatewayz",
        {**_WITH_SUBSCRIPTIONS, "name": STRING, "accounts": BOOL, "account_name": STRING},
    ),
    "LEAFZ": _options("Leafz", {"subscriptions": BOOL, "account": STRING}),
    "PROFILEZ": _options("Profilez", {"name": STRING, "debug": INT, "duration": DURATION}),
    "EXPVARZ": _options("Expvarz"),
    "IPQUEUESZ": _options("Ipqueuesz", {"all": BOOL, "filter": STRING}),
    "RAFTZ": _options("Raftz", {"account": STRING, "group": STRING}),
    "STATZ": _options("AccountStatz", {"accounts": STRINGS, "include_unused": BOOL}),
    "INFO": _options("AccInfo"),
    "CONNS": Shape("accNumConnsReq", {"server": Shape("ServerInfo", {}), "acc": STRING}),
    "KICK": Shape("KickClientReq", {"cid": UINT64}),
    "LDM": Shape("LDMClientReq", {"cid": UINT64}),
    "RELOAD": SERVERS,
    "NSUBS": Shape("accNumSubsReq", {"acc": STRING, "subject": STRING, "queue": STRING}),
}
