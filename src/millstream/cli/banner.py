"""What ``serve`` says once it is ready: what runs, where, how safe, and what to try."""

from collections.abc import Iterator

from millstream import __version__
from millstream.server.facts import RecoveredStream, ServerFacts
from millstream.wire.info import DEFAULT_URL

SHOWN_STREAMS = 10
PROMISES = {
    "fsync": "fsync before ack",
    "disk": "ack before fsync",
    "memory": "in memory",
    "ephemeral": "not kept",
}
GAP = 5


def banner(facts: ServerFacts, command: str = "millstream") -> str:
    """Return the lines to print; ``command`` is how the reader calls us."""
    lines = [_first_line(facts), *_table(_rows(facts)), *_recovered(facts)]
    return "\n".join([*lines, _last_line(facts, command)])


def _first_line(facts: ServerFacts) -> str:
    parts = [f"millstream {__version__}", f"data {_shown(facts.data_dir)}{_age(facts)}"]
    if facts.durability is not None:
        parts.append(f"jetstream: {facts.durability}")
    return "   ".join(parts)


def _shown(path: str) -> str:
    return path if path.startswith(("/", ".")) else f"./{path}"


def _age(facts: ServerFacts) -> str:
    return " (new)" if facts.data_is_new else ""


def _rows(facts: ServerFacts) -> Iterator[tuple[str, str, str]]:
    if facts.nats_url is not None:
        yield "nats", facts.nats_url, "any NATS client"
    if facts.http_url is not None:
        offers = ", ".join(facts.http_offers)
        if facts.durability is not None and "API" in facts.http_offers:
            offers += f"; topics made here: {PROMISES[facts.http_durability]}"
        yield "http", facts.http_url, offers
    if facts.credentials:
        yield "auth", "on", "clients must say who they are"
    elif facts.http_keys and facts.loopback_only:
        yield "auth", "http: on, nats: off", "other machines cannot connect to nats"
    elif facts.loopback_only:
        yield "auth", "off, loopback only", "(millstream user add … to open up)"
    else:
        yield "auth", "off, OPEN", "anyone who can reach this machine can read and write"


def _table(rows: Iterator[tuple[str, str, str]]) -> list[str]:
    listed = list(rows)
    width = max(len(middle) for _, middle, _ in listed) + GAP
    return [f"  {left:4}   {middle:{width}}{right}".rstrip() for left, middle, right in listed]


def _recovered(facts: ServerFacts) -> Iterator[str]:
    took = f"in {facts.recovery_seconds:.2f} s"
    for stream in facts.recovered[:SHOWN_STREAMS]:
        yield f"recovered {_counts(stream)}, {took}"
    if (more := len(facts.recovered) - SHOWN_STREAMS) > 0:
        yield f"recovered {more} more streams, {took}"


def _counts(stream: RecoveredStream) -> str:
    at_most = f" to {stream.lost + stream.in_doubt:,}" if stream.in_doubt else ""
    lost = f"{stream.lost:,}{at_most} lost, {stream.torn:,} torn"
    return f"{stream.name}: {stream.records:,} records, {lost}"


def _last_line(facts: ServerFacts, command: str) -> str:
    ready = f"ready in {facts.ready_seconds:.2g} s."
    if facts.nats_url is None:
        return ready
    server = "" if facts.nats_url == DEFAULT_URL else f"-s {facts.nats_url} "
    return f"""{ready}   Try:  {command} pub {server}orders.new '{{"id":1}}' --create"""
