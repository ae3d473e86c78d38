"""``millstream rtt`` and ``latency``: how long the way to a server is."""

import time
from collections.abc import Sequence

import click

from millstream.cli.access.options import connected, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.shown.output import tell


def _figures(name: str, taken: Sequence[float]) -> dict[str, object]:
    ordered = sorted(taken)

    def at(percent: float) -> float:
        place = min(int(len(ordered) * percent / 100), len(ordered) - 1)
        return round(ordered[place] * 1e6, 1)

    return {
        "measured": name,
        "count": len(ordered),
        "min_us": round(ordered[0] * 1e6, 1),
        "p50_us": at(50),
        "p90_us": at(90),
        "p99_us": at(99),
        "max_us": round(ordered[-1] * 1e6, 1),
    }


def _line(told: dict[str, object]) -> str:
    figures = "   ".join(
        f"{name} {told[f'{name}_us']:,} us" for name in ("min", "p50", "p99", "max")
    )
    return f"{told['measured']}: {figures}   ({told['count']} times)"


@command("millstream rtt", "millstream rtt --count 100 -s nats://other:4222")
@click.option("--count", default=10, show_default=True, type=click.IntRange(1, 1_000_000))
@connected
@json_option
def rtt(count: int, access: ServerAccess, as_json: bool) -> None:
    """Measure how long a ping takes to the server and back."""
    taken = []
    with access.nats() as client:
        for _ in range(count):
            asked = time.perf_counter()
            client.flush()
            taken.append(time.perf_counter() - asked)
        told = _figures(f"ping {client.address}", taken)
    tell(told, as_json, _line(told))


@command("millstream latency", "millstream latency --to nats://other:4222 --count 1000 --size 1024")
@click.option("--count", default=1000, show_default=True, type=click.IntRange(1, 1_000_000))
@click.option("--size", default=16, show_default=True, type=click.IntRange(0, 1 << 20))
@click.option("--to", "other", help="Server of the subscriber.  [default: the same]")
@connected
@json_option
def latency(count: int, size: int, other: str | None, access: ServerAccess, as_json: bool) -> None:
    """Measure how long a message takes from a publisher to a subscriber."""
    from millstream.client import connect
    from millstream.client.jetstream.inbox import new_inbox

    taken = []
    subject, body = new_inbox().replace("_INBOX", "latency"), bytes(size)
    with access.nats() as publisher:
        receiver = connect(other or access.url, login=access.login(), name="millstream cli")
        with receiver:
            incoming = receiver.subscribe(subject)
            receiver.flush()
            for _ in range(count):
                sent = time.perf_counter()
                publisher.publish(subject, body)
                publisher._send(access.timeout)
                incoming.next(access.timeout)
                taken.append(time.perf_counter() - sent)
        told = _figures(f"publish to {publisher.address}, receive from {receiver.address}", taken)
    tell(told, as_json, _line(told))
