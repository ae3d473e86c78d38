"""The commands of ``millstream server``, ``account``, ``user``, ``key`` and ``context``."""

from millstream.cli.lazy import LazyGroup

_HERE = "millstream.cli.operator"

server = LazyGroup(
    name="server",
    purpose="Look at a server over HTTP; check, reload and drain it.",
    within=_HERE,
    places={
        "info": ("server:info", "Show the server at a glance."),
        "report": ("group:report", "List connections, streams or accounts."),
        "check": ("group:check", "Check with the exit codes of monitoring systems."),
        "reload": ("orders:reload", "Let a server of this machine read its settings again."),
        "drain": ("orders:drain", "Let a server's clients go elsewhere, then stop it."),
        "stop": ("orders:stop", "Stop a server of this machine."),
    },
)
report = LazyGroup(
    name="report",
    purpose="List what a server has.",
    within=_HERE,
    also={"conns": "connections"},
    places={
        "connections": ("reports:connections", "List the connections."),
        "streams": ("reports:streams", "List the streams, of every account."),
        "accounts": ("reports:accounts", "List the accounts."),
    },
)
check = LazyGroup(
    name="check",
    purpose="Checks for monitoring: 0 fine, 1 warning, 2 critical, 3 unknown.",
    within=_HERE,
    also={"jetstream": "health"},
    places={
        "connection": ("checks:connection", "Can a client connect, and how fast?"),
        "health": ("checks:health", "Does the server say that it is well?"),
        "stream": ("checks:stream", "Is a stream there, and is it fed?"),
        "consumer": ("checks:consumer", "Does a consumer keep up?"),
        "queue": ("checks:queue", "Is a queue worked on, and has it dead letters?"),
    },
)
account = LazyGroup(
    name="account",
    purpose="Show what an account uses and may use.",
    within=_HERE,
    places={
        "info": ("account:info", "Show the account of this connection."),
        "report": ("reports:accounts", "List the accounts of a server."),
    },
)
user = LazyGroup(
    name="user",
    purpose="Add and remove users, for NATS and HTTP.",
    within=_HERE,
    also={"list": "ls", "delete": "rm", "password": "passwd"},
    places={
        "add": ("users:add", "Add a user."),
        "ls": ("users:ls", "List the users."),
        "rm": ("users:rm", "Remove a user."),
        "passwd": ("users:passwd", "Change a user's password."),
    },
)
key = LazyGroup(
    name="key",
    purpose="Hand out API keys for the HTTP door, list them, take them back.",
    within=_HERE,
    also={"ls": "list", "rm": "revoke"},
    places={
        "add": ("keys:add", "Create a key."),
        "list": ("keys:list_", "List the keys."),
        "revoke": ("keys:revoke", "Take a key back."),
        "disable": ("keys:disable", "Take all keys back, and open HTTP again."),
    },
)
context = LazyGroup(
    name="context",
    purpose="Name servers with their credentials, and choose one.",
    within=_HERE,
    also={"list": "ls", "delete": "rm", "save": "add", "use": "select"},
    places={
        "add": ("contexts:add", "Name a server."),
        "ls": ("contexts:ls", "List the contexts."),
        "info": ("contexts:info", "Show a context."),
        "select": ("contexts:select", "Use a context from now on."),
        "rm": ("contexts:rm", "Forget a context."),
    },
)
