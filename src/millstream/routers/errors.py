"""What can be wrong with a router."""

from millstream.errors import MillstreamError


class RouterNotFound(MillstreamError):
    """No router of that name exists in the account."""

    http_status = 404
    code = "router_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"no router named {name}", {"router": name})


class RouterCycle(MillstreamError):
    """Records would come back to where they started."""

    http_status = 409
    code = "router_cycle"

    def __init__(self, cycle: list[str]) -> None:
        super().__init__(
            f"records would go round: {' -> '.join(cycle)}; allow_cycle permits that",
            {"cycle": cycle},
        )


class SecondSource(MillstreamError):
    """The destination is fed from another source already."""

    http_status = 409
    code = "topic_exists_incompatible"

    def __init__(self, dest: str) -> None:
        super().__init__(
            f"{dest} is fed by a router from another source already",
            {"topic": dest, "reason": "router_dest_fan_in"},
        )


class RouterRepointed(MillstreamError):
    """A router keeps the source and the destination that it was created with."""

    http_status = 409
    code = "topic_exists_incompatible"

    def __init__(self, name: str, source: str, dest: str) -> None:
        super().__init__(
            f"{name} goes from {source} to {dest}; delete it to create another of that name",
            {
                "router": name,
                "reason": "router_repoint_forbidden",
                "existing_source": source,
                "existing_dest": dest,
            },
        )
