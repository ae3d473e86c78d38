"""What can be wrong with a router."""

from collections.abc import Callable

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
            f"the routers would form a cycle: {' -> '.join(cycle)}; set allow_cycle to allow it",
            {"cycle": cycle},
        )
        self.cycle = cycle

    def keep_to(self, may_know: Callable[[str], bool]) -> None:
        """Name the way round only to somebody who may know of all topics on it."""
        if not all(map(may_know, self.cycle)):
            self.message = "the routers would form a cycle; set allow_cycle to allow it"
            self.detail = None


class SecondSource(MillstreamError):
    """The destination is fed from another source already."""

    http_status = 409
    code = "topic_exists_incompatible"

    def __init__(self, dest: str) -> None:
        super().__init__(
            f"another router already feeds {dest} from another source",
            {"topic": dest, "reason": "router_dest_fan_in"},
        )


class RouterRepointed(MillstreamError):
    """A router keeps the source and the destination that it was created with."""

    http_status = 409
    code = "topic_exists_incompatible"

    def __init__(self, name: str, source: str, dest: str) -> None:
        ends = {"existing_source": source, "existing_dest": dest}
        super().__init__(
            f"{name} goes from {source} to {dest}; delete it to create another of that name",
            {"router": name, "reason": "router_repoint_forbidden", **ends},
        )
        self.name = name
        self.ends = ends

    def keep_to(self, may_know: Callable[[str], bool]) -> None:
        """Name only those ends that somebody may know of."""
        known = {which: topic for which, topic in self.ends.items() if may_know(topic)}
        if known != self.ends:
            self.message = (
                f"{self.name} has another source or dest, and a router cannot change them"
            )
            self.detail = {"router": self.name, "reason": "router_repoint_forbidden", **known}
