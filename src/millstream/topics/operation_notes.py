"""Notes: what each operation does in a sentence or two, and an example of how to ask for it."""

from typing import Any

import msgspec


class Usage(msgspec.Struct, frozen=True):
    """A description, an example of the body, and examples of parameters by name."""

    text: str
    body: Any = None
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)


_TOPIC = "/v0/topics/{topic}"
_CONSUMER = f"{_TOPIC}/consumers/{{consumer}}"
# What a parameter of a path is called in examples.
NAMES = {
    "topic": "orders",
    "router": "eu-orders",
    "consumer": "billing",
    "wid": "w1",
    "cid": "5",
    "file": "app.js",
    "folder": "pages",
}

NOTES: dict[tuple[str, str], Usage] = {
    ("GET", "/v0/health"): Usage("Answers while the process is alive, whatever else is wrong."),
    ("GET", "/v0/ready"): Usage("200 once recovery is over; before that 503 with how far it is."),
    ("GET", "/readyz"): Usage("The same as /v0/ready, by the name that probes expect."),
    ("GET", "/v0/metrics"): Usage(
        "The topics that you may see, in figures: Prometheus text, or JSON if you accept that."
    ),
    ("GET", "/v0/topics"): Usage(
        "Names and sizes by name, a page at a time. Ask again with `cursor` while there is a "
        "`next_cursor`.",
        parameters={"prefix": "orders", "page_size": 100},
    ),
    ("PUT", _TOPIC): Usage(
        "Makes the topic, or replaces its whole configuration: what you leave out goes back to "
        "its default.",
        {"subjects": ["orders.>"], "durability": "fsync", "cap_records": 1_000_000},
    ),
    ("GET", _TOPIC): Usage("Sizes, positions, configuration; a queue also shows its counters."),
    ("DELETE", _TOPIC): Usage("Removes the topic with its records, consumers and routers."),
    ("POST", _TOPIC): Usage(
        "Stores the records, all or none, and answers once the promise of the topic's durability "
        "is true. One record per line works too, as application/x-ndjson.",
        {"records": [{"data": {"id": 1}, "subject": "orders.new", "tag": "eu"}]},
    ),
    ("POST", f"{_TOPIC}/diff"): Usage(
        "Everything after a position. With `wait_ms` the answer waits for the first new record.",
        {"from_seq": 0, "limit": 100},
    ),
    ("POST", f"{_TOPIC}/browse"): Usage(
        "For people: newest or oldest first, by time, subject, tag, header, text or JSON path. "
        "Nothing is taken or acked. Go on at `next_seq` while there is one.",
        {"order": "newest", "limit": 20, "json": {"path": "$.total", "op": "gt", "value": 100}},
    ),
    ("POST", f"{_TOPIC}/delete"): Usage(
        "Removes records for good: those below a sequence, those with a tag, or both.",
        {"before_seq": 1000},
    ),
    ("GET", f"{_TOPIC}/tail"): Usage(
        "Server-sent events: the backlog after `from_seq`, then records as they come.",
        parameters={"from_seq": 0},
    ),
    ("GET", f"{_TOPIC}/plan"): Usage("Which files and which tail hold records after a position."),
    ("GET", f"{_TOPIC}/frames"): Usage(
        "Stored frames as they are on disk, at most 8 MiB but at least one.",
        parameters={"from_seq": 1, "to_seq": 100},
    ),
    ("POST", f"{_TOPIC}/stage"): Usage(
        "Keeps a part of a batch where nobody sees it, until it is committed or dropped."
    ),
    ("POST", f"{_TOPIC}/commit"): Usage(
        "Appends a staged batch in one step. The same batch sent again is answered, not stored."
    ),
    ("POST", f"{_TOPIC}/abort"): Usage("Drops what a writer staged and will not commit."),
    ("POST", f"{_TOPIC}/hold"): Usage(
        "A reader shows how far it is; limits wait for the rest for some seconds."
    ),
    ("POST", f"{_TOPIC}/claim"): Usage(
        "Leases up to `max` jobs to a worker. Ack each before its deadline, or it comes again.",
        {"node": "worker-1", "max": 10, "lease_ms": 30_000},
    ),
    ("POST", f"{_TOPIC}/ack"): Usage(
        "Finishes jobs: they are removed from the queue.", {"node": "worker-1", "seqs": [1, 2]}
    ),
    ("POST", f"{_TOPIC}/nack"): Usage(
        "Gives jobs back, to be tried again now or after a delay.",
        {"node": "worker-1", "seqs": [1], "delay_ms": 5000},
    ),
    ("POST", f"{_TOPIC}/extend"): Usage(
        "Sets new deadlines for jobs that take longer.",
        {"node": "worker-1", "seqs": [1], "lease_ms": 60_000},
    ),
    ("GET", f"{_TOPIC}/work"): Usage(
        "Server-sent events with jobs, never more than `max` at a time. Leases end with it.",
        parameters={"node": "worker-1", "max": 2},
    ),
    ("POST", f"{_TOPIC}/redrive"): Usage(
        "Sends dead letters back to the queues that they came from, all or the named ones.",
        {"max": 100},
    ),
    ("GET", f"{_TOPIC}/consumers"): Usage(
        "Each with its lag, what is in flight, and `why`: what it waits for, in one line."
    ),
    ("GET", "/v0/consumers"): Usage("The consumers of every topic that you may see."),
    ("GET", _CONSUMER): Usage("One consumer as JetStream shows it, and `why` it stands there."),
    ("PUT", _CONSUMER): Usage(
        "Makes a durable consumer, or changes one. The body is JetStream's configuration.",
        {"ack_policy": "explicit", "filter_subject": "orders.new"},
    ),
    ("DELETE", _CONSUMER): Usage("Removes the consumer and its position; the records stay."),
    ("POST", f"{_CONSUMER}/pause"): Usage(
        "Deliveries stop for some seconds, or until a time; 0 lets them go on.", {"seconds": 600}
    ),
    ("POST", f"{_CONSUMER}/reset"): Usage(
        "It delivers anew from a sequence; without one, from what was acked last.", {"seq": 1}
    ),
    ("POST", "/v0/publish"): Usage(
        "Sends a message to a subject, as any NATS client does. With `ack` the answer waits until "
        "a stream has stored it.",
        {"subject": "orders.new", "data": {"id": 1}, "ack": True},
    ),
    ("POST", "/v0/request"): Usage(
        "Sends a request and returns the answers of whoever listens.",
        {"subject": "$JS.API.INFO", "timeout_ms": 2000},
    ),
    ("GET", "/v0/flow"): Usage("Routers, mirrors, sources, dead letters: the ways between topics."),
    ("GET", "/v0/pipelines"): Usage(
        "Readers such as Spark queries with their lag, and writers with their last batch."
    ),
    ("GET", "/v0/whoami"): Usage("Your credential's name, account, scopes and prefixes."),
    ("GET", "/v0/login"): Usage("Whether you must send a key, or log in as a user."),
    ("GET", "/v0/feed"): Usage(
        "Server-sent events, one a second: the server's figures, and the streams that changed."
    ),
    ("GET", "/v0/feed/past"): Usage("The server's figures of the last five minutes, for charts."),
    ("GET", "/v0/access"): Usage("Accounts, users and keys with their rights, never a secret."),
    ("GET", "/v0/routers"): Usage("Routers whose topics you may see, by name."),
    ("PUT", "/v0/routers/{router}"): Usage(
        "Copies every new record of `source` to `dest`; a filter picks tags.",
        {"source": "orders", "dest": "orders-eu", "filter": "eu*"},
    ),
    ("GET", "/v0/routers/{router}"): Usage("One router, and how many records it has copied."),
    ("DELETE", "/v0/routers/{router}"): Usage("Ends the copying; what was copied stays."),
    ("POST", "/v0/watch"): Usage(
        "Opens a session over several topics; follow its `stream_url` for the events.",
        {"topics": {"orders": {"from_seq": 0}}},
    ),
    ("GET", "/v0/watch/{wid}"): Usage("The events of a watch; a reconnect goes on where it was."),
    ("GET", "/v0/ws"): Usage("A WebSocket: subscribe, publish and ping in JSON messages."),
    ("GET", "/openapi.json"): Usage("This description, made from the table that serves requests."),
    ("GET", "/"): Usage("The dashboard: everything on it uses this API."),
    ("GET", "/ui/{file}"): Usage("A script, style or picture of the dashboard."),
    ("GET", "/ui/{folder}/{file}"): Usage("A script of one page of the dashboard."),
    ("GET", "/monitoring"): Usage("Links to every monitoring endpoint."),
    ("GET", "/healthz"): Usage(
        "200 while the server, or the stream or consumer that you name, works; else 503 with why.",
        parameters={"details": "true"},
    ),
    ("GET", "/metrics"): Usage("Every figure for Prometheus, under NATS's names and our own."),
    ("GET", "/varz"): Usage("Version, limits, traffic and memory, under nats-server's names."),
    ("GET", "/jsz"): Usage(
        "Streams and consumers of each account.", parameters={"streams": "true"}
    ),
    ("GET", "/connz"): Usage(
        "Clients that are or were connected; sort and filter them.",
        parameters={"sort": "bytes_to", "limit": 10},
    ),
    ("DELETE", "/connz/{cid}"): Usage("Ends one client's connection; most come back at once."),
    ("GET", "/accountz"): Usage("The accounts; with `acc` everything about one."),
    ("GET", "/accstatz"): Usage("What the clients of each account moved."),
    ("GET", "/subsz"): Usage("How many subscriptions there are; with `subs` each of them."),
    ("GET", "/subscriptionsz"): Usage("The same as /subsz, by its longer name."),
    ("GET", "/routez"): Usage("Routes to the other servers of a cluster."),
    ("GET", "/leafz"): Usage("Links to leafnodes, with what went over each."),
    ("GET", "/raftz"): Usage("Consensus groups, where there are any."),
    ("GET", "/ipqueuesz"): Usage("Internal queues and what waits in them."),
    ("GET", "/stacksz"): Usage("What every thread of the server does at this moment."),
    ("GET", "/gatewayz"): Usage("Gateways to other clusters."),
}
