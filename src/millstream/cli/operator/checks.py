"""``server check``: one line and an exit code that monitoring systems understand."""

import time
from collections.abc import Callable
from typing import Any

import click

from millstream.cli.access.options import connected, json_option, over_http
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.operator.monitor import health as ask_health
from millstream.cli.shown import figures
from millstream.cli.shown.figures import DURATION
from millstream.cli.shown.output import as_text

WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
FINE, WARNING, CRITICAL, UNKNOWN = range(4)
Json = dict[str, Any]
Verdict = tuple[int, str, Json]


def judged(name: str, as_json: bool, look: Callable[[], Verdict]) -> int:
    """Print the verdict with its figures, and return the exit code."""
    from millstream.client.errors import ClientError

    try:
        code, text, told = look()
    except ClientError as error:
        code, text, told = CRITICAL, str(error), {}
    if as_json:
        click.echo(as_text({"check": name, "status": WORDS[code], "text": text, **told}))
    else:
        shown = " ".join(f"{field}={value}" for field, value in told.items())
        click.echo(f"{WORDS[code]} {name}: {text}" + (f" | {shown}" if shown else ""))
    return code


def above(value: float, warning: float | None, critical: float | None) -> int:
    """Return how bad a figure is that should be small."""
    if critical is not None and value >= critical:
        return CRITICAL
    return WARNING if warning is not None and value >= warning else FINE


@command("millstream server check connection --rtt-warning 50ms --rtt-critical 500ms")
@click.option("--rtt-warning", type=DURATION, help="A slower answer is a warning.")
@click.option("--rtt-critical", type=DURATION, help="A slower answer is critical.")
@connected
@json_option
def connection(
    rtt_warning: int | None, rtt_critical: int | None, access: ServerAccess, as_json: bool
) -> int:
    """Check that a client can connect and gets answers in time."""

    def look() -> Verdict:
        began = time.perf_counter()
        with access.nats() as client:
            connected_in = time.perf_counter() - began
            asked = time.perf_counter()
            client.flush()
            rtt = time.perf_counter() - asked
            where = f"connected to {client.address}"
        code = above(rtt * 1e9, rtt_warning, rtt_critical)
        told = {"connect_s": round(connected_in, 4), "rtt_s": round(rtt, 5)}
        return code, where, told

    return judged("connection", as_json, look)


@command("millstream server check health")
@over_http
@json_option
def health(access: ServerAccess, as_json: bool) -> int:
    """Check that the server says of itself that it is well."""

    def look() -> Verdict:
        status, told = ask_health(access)
        text = told.get("error") or told.get("status") or f"status {status}"
        return (FINE if status == 200 else CRITICAL), str(text), {"http_status": status}

    return judged("health", as_json, look)


@command(
    "millstream server check stream ORDERS --max-age 10m",
    "millstream server check stream ORDERS --messages-critical 1000000",
)
@click.argument("name", metavar="STREAM")
@click.option("--max-age", type=DURATION, help="An older last record is critical.")
@click.option("--messages-warning", type=int, help="So many records are a warning.")
@click.option("--messages-critical", type=int, help="So many records are critical.")
@click.option("--min-messages", type=int, help="Fewer records are critical.")
@connected
@json_option
def stream(
    name: str,
    max_age: int | None,
    messages_warning: int | None,
    messages_critical: int | None,
    min_messages: int | None,
    access: ServerAccess,
    as_json: bool,
) -> int:
    """Check that STREAM is there, is fed and is not too full."""

    def look() -> Verdict:
        with access.jetstream() as js:
            state = js.stream(name)["state"]
        held = int(state["messages"])
        code, text = above(held, messages_warning, messages_critical), f"{held:,} records"
        lost = len((state.get("lost") or {}).get("msgs") or ())
        if min_messages is not None and held < min_messages:
            code, text = CRITICAL, f"only {held:,} records, fewer than {min_messages:,}"
        if max_age is not None and _age(state) > max_age:
            code, text = CRITICAL, f"the last record came {figures.since(state['last_ts'])}"
        if lost:
            code, text = max(code, WARNING), f"{text}, {lost:,} lost to damage"
        return code, text, {"messages": held, "bytes": state["bytes"], "lost": lost}

    return judged(f"stream {name}", as_json, look)


def _age(state: Json) -> float:
    if not state["last_seq"]:
        return float("inf")
    return (time.time() - figures.read_moment(state["last_ts"]).timestamp()) * 1e9


@command("millstream server check consumer ORDERS billing --pending-critical 10000")
@click.argument("stream_name", metavar="STREAM")
@click.argument("name", metavar="CONSUMER")
@click.option("--pending-warning", type=int, help="So many records to come are a warning.")
@click.option("--pending-critical", type=int, help="So many records to come are critical.")
@click.option("--redelivery-critical", type=int, help="So many redeliveries are critical.")
@connected
@json_option
def consumer(
    stream_name: str,
    name: str,
    pending_warning: int | None,
    pending_critical: int | None,
    redelivery_critical: int | None,
    access: ServerAccess,
    as_json: bool,
) -> int:
    """Check that CONSUMER of STREAM keeps up."""

    def look() -> Verdict:
        from millstream.client.jetstream.consumer_state import why_of

        with access.jetstream() as js:
            found = js.consumer(stream_name, name)
        reason = why_of(found)
        again = int(found.get("num_redelivered", 0))
        code = above(reason.pending, pending_warning, pending_critical)
        code = max(code, above(again, None, redelivery_critical))
        told = {"pending": reason.pending, "in_flight": reason.in_flight, "redelivered": again}
        return code, reason.cause, told

    return judged(f"consumer {stream_name}/{name}", as_json, look)


@command("millstream server check queue jobs --ready-critical 1000 --dead-critical 1")
@click.argument("name", metavar="QUEUE")
@click.option("--ready-warning", type=int, help="So many waiting jobs are a warning.")
@click.option("--ready-critical", type=int, help="So many waiting jobs are critical.")
@click.option("--dead-critical", type=int, help="So many dead letters are critical.")
@over_http
@json_option
def queue(
    name: str,
    ready_warning: int | None,
    ready_critical: int | None,
    dead_critical: int | None,
    access: ServerAccess,
    as_json: bool,
) -> int:
    """Check that QUEUE is worked on and gives few jobs up."""

    def look() -> Verdict:
        with access.topics() as topics:
            counted = topics.topic(name).state().queue
        if counted is None:
            return UNKNOWN, f"{name} is a log, not a queue", {}
        code = above(counted.ready, ready_warning, ready_critical)
        code = max(code, above(counted.dead_lettered, None, dead_critical))
        told = {"ready": counted.ready, "leased": counted.in_flight}
        told["dead_lettered"] = counted.dead_lettered
        return code, f"{counted.ready:,} ready, {counted.dead_lettered:,} dead", told

    return judged(f"queue {name}", as_json, look)
