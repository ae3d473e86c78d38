"""``stream backup`` and ``restore``: a stream as two files, as the nats command writes them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from millstream.cli.access.options import connected, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.shown import figures
from millstream.cli.shown.output import tell
from millstream.cli.shown.progress import ProgressLine

if TYPE_CHECKING:
    from millstream.client.jetstream.api import JetStreamApi

Json = dict[str, Any]
CHUNK = 128 * 1024
PATIENCE = 30.0  # seconds for the next part
ABOUT, RECORDS = "backup.json", "stream.tar.s2"


@command("millstream stream backup ORDERS /mnt/backups/orders")
@click.argument("name", metavar="STREAM")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--no-consumers", is_flag=True, help="Leave the consumers out.")
@click.option("--check", is_flag=True, help="Let the server check every record first.")
@connected
@json_option
def backup(
    name: str, directory: Path, no_consumers: bool, check: bool, access: ServerAccess, as_json: bool
) -> None:
    """Save STREAM with its consumers into DIRECTORY, while it is in use.

    The files are those of the nats command: either reads what the other wrote. To back up a whole
    server, and any moment of it, use `millstream backup`.
    """
    if directory.exists() and any(directory.iterdir()):
        raise click.UsageError(f"{directory} is not empty: name another directory")
    partial = directory / f"{RECORDS}.part"
    with access.jetstream() as js:
        held = js.stream(name)["state"]
        directory.mkdir(parents=True, exist_ok=True)
        about, written = _receive(js, name, partial, no_consumers, check)
    partial.replace(directory / RECORDS)
    (directory / ABOUT).write_text(json.dumps(about, indent=2) + "\n")
    answer = {"stream": name, "directory": str(directory), "bytes": written, **_counts(held)}
    tell(
        answer,
        as_json,
        f"saved {name}: {held['messages']:,} records in {figures.size(written)}, {directory}",
    )


def _counts(state: Json) -> Json:
    return {"messages": state["messages"], "last_seq": state["last_seq"]}


def _receive(
    js: "JetStreamApi", name: str, file: Path, no_consumers: bool, check: bool
) -> tuple[Json, int]:
    from millstream.client.jetstream.inbox import new_inbox

    inbox = new_inbox()
    parts = js.client.subscribe(inbox)
    wish = {"deliver_subject": inbox, "chunk_size": CHUNK}
    about = js.about(
        "STREAM.SNAPSHOT", name, body={**wish, "no_consumers": no_consumers, "jsck": check}
    )
    size = int(about["state"]["bytes"])
    written = 0
    with file.open("wb") as out, ProgressLine(f"saving {name}", size, in_bytes=True) as progress:
        while True:
            part = parts.next(PATIENCE)
            if not part.payload:
                break
            out.write(part.payload)
            written += len(part.payload)
            progress.add(len(part.payload))
            if part.reply:
                js.client.publish(part.reply, b"")
                js.client.flush()
        if part.status not in (None, 204):
            raise click.ClickException(f"the server ended the backup early: status {part.status}")
    return {"config": about["config"], "state": about["state"]}, written


@command(
    "millstream stream restore /mnt/backups/orders",
    "millstream stream restore /mnt/backups/orders --replicas 1",
)
@click.argument("directory", type=click.Path(exists=True, path_type=Path))
@click.option("--replicas", type=click.IntRange(min=1), help="Copies in a cluster, as of now.")
@connected
@json_option
def restore(directory: Path, replicas: int | None, access: ServerAccess, as_json: bool) -> None:
    """Bring back the stream that DIRECTORY holds; there must be none of its name."""
    for file in (ABOUT, RECORDS):
        if not (directory / file).exists():
            raise click.UsageError(f"{directory} holds no backup of a stream: {file} is missing")
    about = json.loads((directory / ABOUT).read_text())
    if replicas is not None:
        about["config"]["num_replicas"] = replicas
    name = about["config"]["name"]
    with access.jetstream() as js:
        stream = _send(js, name, about, directory / RECORDS)
    held = stream["state"]
    ends = f"seq {held['first_seq']:,} to {held['last_seq']:,}"
    tell(stream, as_json, f"restored {name}: {held['messages']:,} records, {ends}")


def _send(js: "JetStreamApi", name: str, about: Json, file: Path) -> Json:
    told = js.about("STREAM.RESTORE", name, body=about)
    subject = told["deliver_subject"]
    size = file.stat().st_size
    with (
        file.open("rb") as parts,
        ProgressLine(f"restoring {name}", size, in_bytes=True) as progress,
    ):
        while part := parts.read(CHUNK):
            answer = js.client.request(subject, part, PATIENCE).payload
            if answer and b'"error"' in answer:
                _refuse(answer)
            progress.add(len(part))
        last = js.client.request(subject, b"", PATIENCE).payload
    _refuse(last)
    stream: Json = json.loads(last)
    return stream


def _refuse(answer: bytes) -> None:
    error = json.loads(answer).get("error")
    if error:
        from millstream.client.jetstream.api import JetStreamRefused

        raise JetStreamRefused(
            error.get("code", 500), error.get("err_code", 0), error["description"]
        )
