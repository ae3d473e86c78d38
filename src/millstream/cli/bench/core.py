"""``millstream bench core``: how fast a NATS server is, seen from plain clients."""

from collections.abc import Iterator

import click
import msgspec

from millstream.cli.access.options import connected, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.bench.core_runs import Load, Measured, fan_out, publish, request_reply
from millstream.cli.command import command

_WORKS = ("pub", "one", "many", "request")


@command("millstream bench core", "millstream bench core --msgs 200000 --size 1024 --json")
@connected
@click.option("--msgs", default=100_000, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--requests",
    type=click.IntRange(min=1),
    help="Requests to send, one after the other.  [default: a twentieth of --msgs]",
)
@click.option(
    "--size",
    default=128,
    show_default=True,
    type=click.IntRange(min=0),
    help="Payload size in bytes; from 8 on, deliveries are timed.",
)
@click.option(
    "--subs",
    default=4,
    show_default=True,
    type=click.IntRange(min=1),
    help="Subscribers of the 1->N run.",
)
@click.option(
    "--work",
    "works",
    multiple=True,
    type=click.Choice(_WORKS),
    help="Workload: pub, one (1->1), many (1->N) or request; repeatable.  [default: all]",
)
@json_option
def core(
    access: ServerAccess,
    msgs: int,
    requests: int | None,
    size: int,
    subs: int,
    works: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure publishes, fan-out and requests, with each client in its own process.

    The clients are written in Python and often slower than the server: compare servers with each
    other rather than with other tools.
    """
    load = Load(access.url, msgs, size)
    asks = Load(access.url, requests or max(1, msgs // 20), size)
    for measured in _measure(works or _WORKS, load, asks, subs):
        click.echo(as_object(measured) if as_json else line(measured))


def _measure(works: tuple[str, ...], load: Load, asks: Load, subs: int) -> Iterator[Measured]:
    runs = {
        "pub": lambda: publish(load),
        "one": lambda: fan_out(load, 1),
        "many": lambda: fan_out(load, subs),
        "request": lambda: request_reply(asks),
    }
    for work in _WORKS:
        if work in works:
            yield runs[work]()


def line(measured: Measured) -> str:
    """Return one run as people read it."""
    return (
        f"{measured.work:<14}{measured.messages:>10,} msgs of {measured.size:,} B"
        f"{measured.per_second:>12,.0f} msgs/s{measured.megabytes_per_second:>9,.1f} MB/s"
        f"   p50 {_shown(measured.percentile(50))}   p99 {_shown(measured.percentile(99))}"
    )


def _shown(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:,.0f} us"


def as_object(measured: Measured) -> str:
    """Return one run as a line of JSON."""
    told = {
        "work": measured.work,
        "messages": measured.messages,
        "size": measured.size,
        "seconds": round(measured.seconds, 6),
        "msgs_per_s": round(measured.per_second, 1),
        "mb_per_s": round(measured.megabytes_per_second, 3),
        "p50_us": _microseconds(measured.percentile(50)),
        "p99_us": _microseconds(measured.percentile(99)),
    }
    return msgspec.json.encode(told).decode()


def _microseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e6, 1)
