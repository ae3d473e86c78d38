"""What an account's clients have and moved, as the system account is told."""

from typing import Any

from millstream.kernel._hub import Hub
from millstream.nats.accounts.accounts import Space


def account_figures(hub: Hub, space: Space) -> dict[str, Any]:
    """Return the figures of the clients that are here now, and what past ones moved."""
    stats = [space.past, *(hub.connection_stats(cid) for cid in space.members)]
    return {
        "acc": space.name,
        "name": space.account.shown_name,
        "conns": len(space.members),
        "leafnodes": 0,
        "total_conns": len(space.members),
        "num_subscriptions": space.interest.stats()["num_subscriptions"],
        # Seen from the account: what its clients were sent, and what came from them.
        "sent": _moved(stats, "out"),
        "received": _moved(stats, "in"),
        "slow_consumers": space.past["slow_consumers"],
    }


_NONE = {"msgs": 0, "bytes": 0}


def _moved(stats: list[dict[str, int]], way: str) -> dict[str, Any]:
    return {
        "msgs": sum(figures[f"{way}_msgs"] for figures in stats),
        "bytes": sum(figures[f"{way}_bytes"] for figures in stats),
        **dict.fromkeys(("gateways", "routes", "leafs"), _NONE),
    }
