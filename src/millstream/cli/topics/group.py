"""The commands of ``millstream topic``, ``queue``, ``router`` and ``reader``."""

from millstream.cli.lazy import LazyGroup

_HERE = "millstream.cli.topics"
_OTHER_NAMES = {"list": "ls", "create": "add", "update": "edit", "delete": "rm"}

topic = LazyGroup(
    name="topic",
    purpose="Topics of the HTTP API: the same logs as streams, over HTTP.",
    within=_HERE,
    also={**_OTHER_NAMES, "publish": "pub"},
    places={
        "ls": ("listing:ls", "List the topics."),
        "info": ("listing:info", "Show a topic's state and configuration."),
        "add": ("making:add", "Create a topic."),
        "edit": ("making:edit", "Change a topic."),
        "rm": ("making:rm", "Remove a topic with everything in it."),
        "pub": ("records:pub", "Write records."),
        "view": ("records:view", "Show records."),
        "tail": ("records:tail", "Print records as they come."),
        "purge": ("records:purge", "Remove records."),
    },
)
queue = LazyGroup(
    name="queue",
    purpose="Job queues: topics whose records are leased, done and given up.",
    within=_HERE,
    also={**_OTHER_NAMES, "claim": "next"},
    places={
        "ls": ("queues:ls", "List the queues and how much is to do."),
        "info": ("queues:info", "Show a queue's jobs, leases and configuration."),
        "add": ("queues:add", "Create a queue."),
        "edit": ("queues:edit", "Change a queue."),
        "rm": ("making:rm", "Remove a queue with everything in it."),
        "pub": ("records:pub", "Add jobs."),
        "view": ("records:view", "Show jobs, without leasing them."),
        "next": ("queues:next_", "Lease jobs and print them."),
    },
)
router = LazyGroup(
    name="router",
    purpose="Routers copy records from topic to topic.",
    within=_HERE,
    also=_OTHER_NAMES,
    places={
        "ls": ("routers:ls", "List the routers."),
        "info": ("routers:info", "Show a router."),
        "add": ("routers:add", "Create or change a router."),
        "rm": ("routers:rm", "Remove a router."),
    },
)
reader = LazyGroup(
    name="reader",
    purpose="Readers are Spark queries, which keep their positions themselves.",
    within=_HERE,
    also=_OTHER_NAMES,
    places={
        "ls": ("readers:ls", "List the Spark queries that read streams, and how far they are."),
        "info": ("readers:info", "Show how far a query is."),
        "rm": ("readers:rm", "Forget a query that is over."),
    },
)
