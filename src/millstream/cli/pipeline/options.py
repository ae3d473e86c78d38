"""Options that the pipeline commands share, and how they become a session and a run."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from millstream.cli.main import DEBUG
from millstream.cli.options import server_option
from millstream.cli.pipeline.shown import show, wants_lines
from millstream.pipelines.checkpoints import folder
from millstream.pipelines.file.spec import Pipeline, TableSink
from millstream.pipelines.known_columns import check_columns
from millstream.pipelines.preflight import preflight, sampled_fields
from millstream.pipelines.problems import PipelineError
from millstream.pipelines.run import run
from millstream.pipelines.session import SessionOptions, spark_session, ui_link

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Command = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class SparkChoice:
    """Where Spark runs and what is shown of it."""

    master: str | None = None
    remote: str | None = None
    ui: bool = True
    data: Path | None = None  # beside the pipeline's file
    debug: bool = False
    as_json: bool = False

    @property
    def local(self) -> bool:
        """Return whether all of Spark runs on this machine."""
        return self.remote is None and (self.master or "local").startswith("local")


def spark_options(command: Command) -> Command:
    """Add --master, --remote, --no-ui, --data, --debug and --json, passed on as ``spark``."""

    def wrapped(
        master: str | None,
        remote: str | None,
        no_ui: bool,
        data: Path | None,
        debug: bool,
        as_json: bool,
        **rest: Any,
    ) -> Any:
        if master and remote:
            raise click.UsageError("give --master or --remote, not both")
        if debug:
            os.environ[DEBUG] = "1"  # a failure then shows its traceback
        return command(spark=SparkChoice(master, remote, not no_ui, data, debug, as_json), **rest)

    wrapped.__doc__, wrapped.__name__ = command.__doc__, command.__name__
    wrapped.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def server_options(command: Command) -> Command:
    """Add -s/--url and credentials, passed on as ``server``: options of the Spark source."""

    def wrapped(**given: Any) -> Any:
        server = {name: given.pop(key) for key, name in _LOGIN.items() if key in given}
        found = {name: value for name, value in server.items() if value}
        return command(server=found, **given)

    wrapped.__doc__, wrapped.__name__ = command.__doc__, command.__name__
    wrapped.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    for option in reversed(_CREDENTIALS):
        wrapped = option(wrapped)
    return server_option(wrapped)


_LOGIN = {
    "url": "url",
    "user": "user",
    "password": "password",
    "token": "token",
    "creds": "credsFile",
    "nkey": "nkeyFile",
    "tlsca": "tlsCa",
    "tlscert": "tlsCert",
    "tlskey": "tlsKey",
}
_CREDENTIALS = [
    click.option("--user", envvar="NATS_USER", help="User name."),
    click.option("--password", envvar="NATS_PASSWORD", help="Password of the user."),
    click.option("--token", envvar="MILLSTREAM_TOKEN", help="Token; over HTTP an API key."),
    click.option("--creds", envvar="NATS_CREDS", help="Credentials file with a JWT and a seed."),
    click.option("--nkey", envvar="NATS_NKEY", help="File with the seed of a user's nkey."),
    click.option("--tlsca", envvar="NATS_CA", help="File with the certificate authority to trust."),
    click.option("--tlscert", envvar="NATS_CERT", help="File with the client's certificate."),
    click.option("--tlskey", envvar="NATS_KEY", help="File with the key of that certificate."),
]
_OPTIONS = [
    click.option("--master", help="Spark cluster, or local[N].  [default: local[*]]"),
    click.option("--remote", help="Spark Connect server, as sc://host:port."),
    click.option("--no-ui", is_flag=True, help="Do not start the Spark UI."),
    click.option(
        "--data",
        type=click.Path(path_type=Path, file_okay=False),
        help="Directory for checkpoints, in .millstream.  [default: beside the file or the table]",
    ),
    click.option("--debug", is_flag=True, help="Show Java's output and tracebacks."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line."),
]


@contextmanager
def opened(choice: SparkChoice, pipeline: Pipeline) -> Iterator["SparkSession"]:
    """Start Spark as chosen; Java writes to a file beside the checkpoints, unless debugging."""
    name, settings = pipeline.name, dict(pipeline.spark)
    log = None if choice.debug else folder(pipeline, choice.data) / "logs" / f"{name}.log"
    options = SessionOptions(name, choice.master, choice.remote, choice.ui, log, settings)
    click.echo("starting Spark, which takes some seconds …", err=True)
    with spark_session(options) as spark:
        if (link := ui_link(spark)) is not None:
            click.echo(f"Spark UI {link}", err=True)
        yield spark


def run_pipeline(pipeline: Pipeline, choice: SparkChoice) -> None:
    """Check, start, run and show a pipeline; Ctrl-C stops it between two batches."""
    _check_remote(pipeline, choice)
    preflight(pipeline, local=choice.local)
    check_columns(pipeline, partial(sampled_fields, pipeline))
    with (
        opened(choice, pipeline) as spark,
        closing(run(spark, pipeline, choice.data)) as events,  # type: ignore[type-var]
    ):
        show(events, as_lines=wants_lines(choice.as_json))


def _check_remote(pipeline: Pipeline, choice: SparkChoice) -> None:
    """Refuse what only the process that drives Spark can do."""
    for sink in pipeline.sinks:
        here = isinstance(sink, TableSink) and (sink.format != "parquet" or sink.mode != "append")
        if choice.remote and pipeline.streaming and here:
            raise PipelineError(f"sink {sink.name!r} is written by the driver: use --master here")
