"""``cluster`` and ``leafnodes``: taken while they ask for nothing, refused when they would connect.

A name alone is harmless: clients see it in INFO.
"""

from millstream.server.conf.setting import Setting, Table, ignored, read, unsupported

_ALONE = "this server joins no cluster: remove it, or use nats-server"
_NO_PEERS = "there are no other servers"


def cluster(setting: Setting) -> str:
    """Return the cluster's name; anything that would listen or connect is refused."""
    name = read(setting.block(), _CLUSTER, setting.findings).get("name", "")
    return str(name)


def leafnodes(setting: Setting) -> None:
    """Take an empty block."""
    read(setting.block(), _LEAFNODES, setting.findings)


_CLUSTER: Table = {
    "name": ("name", Setting.word),
    **dict.fromkeys(("listen", "port", "host", "net", "routes"), ("", unsupported(_ALONE))),
    **dict.fromkeys(("authorization", "tls", "permissions", "accounts"), ("", unsupported(_ALONE))),
    **dict.fromkeys(("cluster_advertise", "advertise"), ("", ignored(Setting.text, _NO_PEERS))),
    "no_advertise": ("", ignored(Setting.switch, _NO_PEERS)),
    "connect_retries": ("", ignored(Setting.integer, _NO_PEERS)),
    "connect_backoff": ("", ignored(Setting.switch, _NO_PEERS)),
    "pool_size": ("", ignored(Setting.integer, _NO_PEERS)),
    "ping_max": ("", ignored(Setting.integer, _NO_PEERS)),
    "ping_interval": ("", ignored(Setting.duration_or_seconds, _NO_PEERS)),
    "write_deadline": ("", ignored(Setting.duration_or_seconds, _NO_PEERS)),
    "write_timeout": ("", ignored(Setting.text, _NO_PEERS)),
    "compression": ("", ignored(lambda setting: setting.value, _NO_PEERS)),
}
_LEAFNODES: Table = dict.fromkeys(
    (
        "listen",
        "port",
        "host",
        "net",
        "authorization",
        "remotes",
        "reconnect",
        "reconnect_delay",
        "reconnect_interval",
        "dial_timeout",
        "tls",
        "leafnode_advertise",
        "advertise",
        "no_advertise",
        "min_version",
        "minimum_version",
        "compression",
        "isolate_leafnode_interest",
        "isolate",
        "write_deadline",
        "write_timeout",
    ),
    ("", unsupported("leaf nodes cannot connect: remove it, or use nats-server")),
)
