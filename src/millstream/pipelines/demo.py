"""A pipeline to look at: generated orders become a table by minute and a stream of changes."""

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.client.errors import NoResponders
from millstream.pipelines.checkpoints import home_of
from millstream.pipelines.file.spec import Pipeline, StreamTarget
from millstream.pipelines.preflight import ensure_stream
from millstream.pipelines.problems import PipelineError

if TYPE_CHECKING:
    from millstream.spark.server import Server

REGIONS = ("asia", "eu", "us")
PRODUCTS = ("flour", "bran", "groats", "semolina")
MINUTES = 5  # over which generated orders are spread, up to now

# Records of any kind will do: what is no order counts with its subject and the time it came.
_READ = """
select coalesce(try_variant_get(j, '$.at', 'timestamp'), ts) as at,
       coalesce(try_variant_get(j, '$.region', 'string'), subject) as region,
       try_variant_get(j, '$.amount', 'double') as amount
from (select *, try_parse_json(cast(payload as string)) as j from orders)
"""


def orders(count: int, now: datetime, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Return orders of the last minutes, oldest first; the same seed gives the same ones."""
    dice = random.Random(seed)
    first = now - timedelta(minutes=MINUTES)
    for number in range(1, count + 1):
        at = first + timedelta(minutes=MINUTES) * (number / count)
        yield {
            "id": number,
            "customer": dice.randint(1, 200),
            "region": dice.choice(REGIONS),
            "product": dice.choice(PRODUCTS),
            "amount": round(dice.uniform(5, 250), 2),
            "at": at.astimezone(UTC).isoformat(timespec="milliseconds"),
        }


def fill(server: "Server", stream: str, count: int, now: datetime) -> int:
    """Publish orders to a stream that holds nothing, made if need be; returns how many it was."""
    if server.url.startswith(("http://", "https://")):
        raise PipelineError("the demo publishes over NATS: give a nats:// url")
    with closing(server.streams()) as streams:
        ensure_stream(server, streams, StreamTarget(stream, create=(f"{stream.lower()}.>",)))
        if streams.plan(stream).last_seq:
            return 0
    _publish(server, stream, list(orders(count, now)))
    return count


def start_afresh_where_due(
    server: "Server", stream: str, pipeline: Pipeline, home: Path
) -> str | None:
    """Forget what earlier demos took where it was of another stream, or their table is gone.

    Returns why; None where there is nothing to forget. Streams of two data directories may look
    alike, so it is remembered when the stream was created.
    """
    with server.client() as client:
        info = json.loads(client.request(f"$JS.API.STREAM.INFO.{stream}").payload)
    kept = Path(home_of(pipeline, home))
    note, created = kept / "created", str(info["created"])
    why = None
    if kept.is_dir():
        if not note.is_file() or note.read_text() != created:
            why = f"{stream} is another stream than that of the last demo here"
        elif not (home / table_of(stream)).is_dir():
            why = f"{table_of(stream)} is gone"
    if why is not None:
        shutil.rmtree(kept)
    kept.mkdir(parents=True, exist_ok=True)
    note.write_text(created)
    return why


def _publish(server: "Server", stream: str, made: list[dict[str, Any]]) -> None:
    """Publish all; in order on one connection, so when the last one is stored, all are."""
    subjects = [f"{stream.lower()}.{order['region']}" for order in made]
    payloads = [json.dumps(order).encode() for order in made]
    with server.client() as client:
        for subject, payload in zip(subjects[:-1], payloads[:-1], strict=True):
            client.publish(subject, payload)
        try:
            answer = json.loads(client.request(subjects[-1], payloads[-1]).payload)
        except NoResponders:
            answer = {}
    if answer.get("stream") != stream:
        raise PipelineError(
            f"{stream} does not capture {subjects[-1]}: use a stream of another name"
        )


def document(stream: str) -> dict[str, Any]:
    """Return the pipeline as a file would say it."""
    window = {"window": {"column": "at", "size": "1m"}, "by": ["region"]}
    totals = {"orders": "count(*)", "revenue": "round(sum(amount), 2)"}
    return {
        "name": f"demo-{stream}",
        "sources": {"orders": {"stream": stream}},
        "steps": [
            {"name": "read", "sql": _READ},
            {"name": "by_minute", "from": "read", **window, "aggregate": totals},
        ],
        "sinks": [
            {"from": "by_minute", "parquet": table_of(stream), "mode": "complete", "name": "table"},
            {
                "from": "by_minute",
                "stream": result_of(stream),
                "create": [result_of(stream)],
                "mode": "update",
                "name": "stream",
            },
        ],
    }


def table_of(stream: str) -> str:
    """Return where the table goes."""
    return f"lake/{stream.lower().replace('-', '_')}_by_minute"


def result_of(stream: str) -> str:
    """Return the stream of changed minutes."""
    return f"{stream}-BY-MINUTE"
