"""The graph of routers: which way records can go. Pure: names in, names out."""

from collections.abc import Iterable

Edge = tuple[str, str]  # (source, dest)


def find_cycle(edges: Iterable[Edge], source: str, dest: str) -> list[str] | None:
    """Return the way that ``source → dest`` would close, from ``source`` back to it, or None."""
    onward: dict[str, list[str]] = {}
    for a, b in edges:
        onward.setdefault(a, []).append(b)
    came_from: dict[str, str] = {dest: source}
    waiting = [dest]
    while waiting:
        at = waiting.pop(0)
        if at == source:
            break
        for after in onward.get(at, ()):
            if after not in came_from:
                came_from[after] = at
                waiting.append(after)
    else:
        return None
    cycle, at = [source], came_from[source]
    while at != source:
        cycle.append(at)
        at = came_from[at]
    return [*cycle[:1], *reversed(cycle[1:]), source]


def other_source(edges: Iterable[Edge], source: str, dest: str) -> bool:
    """Say whether something else feeds ``dest`` already."""
    return any(b == dest and a != source for a, b in edges)
