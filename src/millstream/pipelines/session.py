"""The Spark session of a pipeline: local unless told otherwise, quiet unless asked."""

import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from millstream.pipelines.java import check_java
from millstream.pipelines.problems import MissingPackage, PipelineError
from millstream.spark.worker_python import workers_use_it

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_PORT = 15002  # of Spark Connect
CONNECT_SECONDS = 10.0
_ENDED = re.compile(r"^Exception in thread .*?: (.+)$", re.MULTILINE)
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
# Arrow for Java checks bounds and nulls at every value that it gives. Spark asks for nulls itself,
# and the batches are ours: without the checks a scan costs less, a malformed batch would end Java.
JAVA_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
_LOCAL = {
    # Spark would otherwise announce itself by the name of the machine, which may not resolve.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
}


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Where Spark runs and what it says. ``log`` is where Java writes, None is standard error."""

    name: str
    master: str | None = None
    remote: str | None = None
    ui: bool = True
    log: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def spark_session(options: SessionOptions) -> Iterator["SparkSession"]:
    """Start Spark, and stop it in the end; raises a one-line problem when it cannot start.

    A process has one Spark: where it runs already, that one is used and goes on running.
    """
    _check_pyspark()
    was_running = _runs_already()
    if options.remote is None:
        check_java()
    else:
        _check_remote(options.remote)
    # From before Java starts: it looks for data sources by itself, with whatever Python it finds.
    with workers_use_it() if _is_local(options) else nullcontext():
        with _java_writes_to(options.log):
            spark = _started(options)
        try:
            with nullcontext() if options.log is None else _pyspark_keeps_quiet():
                yield spark
        finally:
            if not was_running:
                spark.stop()


def _check_remote(remote: str) -> None:
    """Raise where nobody listens: Spark's client would try again for ten minutes, and say nothing.

    Where it goes through a proxy or over several addresses, that is the client's affair.
    """
    parts = urlsplit(remote)
    if parts.scheme != "sc" or not parts.hostname:
        return
    try:
        where = parts.hostname, parts.port or CONNECT_PORT
        socket.create_connection(where, CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
        raise PipelineError(
            f"no Spark Connect server answers at {parts.scheme}://{parts.netloc}: {why}"
        ) from error


@contextmanager
def _pyspark_keeps_quiet() -> Iterator[None]:
    """Let PySpark not print what it raises too: a failure is told once."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def _runs_already() -> bool:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def ui_link(spark: "SparkSession") -> str | None:
    """Return where the Spark UI is, None where there is none."""
    try:
        link: str | None = spark.sparkContext.uiWebUrl
        return link
    except Exception:  # Spark Connect has no context
        return None


def is_local(spark: "SparkSession") -> bool:
    """Say whether all of Spark runs on this machine."""
    try:
        return str(spark.sparkContext.master).startswith("local")
    except Exception:  # Spark Connect has no context
        return False


def configuration(options: SessionOptions) -> dict[str, str]:
    """Return what the session is configured with; the user's word is last."""
    own = {
        "spark.ui.enabled": "true" if options.ui else "false",
        "spark.sql.session.timeZone": "UTC",
    }
    return own | (_LOCAL if _is_local(options) else {}) | dict(options.settings)


def _is_local(options: SessionOptions) -> bool:
    return options.remote is None and (options.master or "local").startswith("local")


def _started(options: SessionOptions) -> "SparkSession":
    from pyspark.sql import SparkSession

    from millstream.spark.session import register

    builder = SparkSession.builder.appName(options.name)
    if options.remote is not None:
        builder = builder.remote(options.remote)
    else:
        builder = builder.master(options.master or "local[*]")
    for key, value in configuration(options).items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
        if options.remote is None:
            spark.sparkContext.setLogLevel("WARN" if options.log is None else "ERROR")
        register(spark)
    except Exception as error:
        where = options.remote or options.master or "local[*]"
        log = f" (Java's words: {options.log})" if options.log else ""
        text = why_java_ended(options.log) or str(error).strip().split("\n")[0]
        raise PipelineError(f"Spark did not start at {where}: {text}{log}") from error
    return spark


def why_java_ended(log: Path | None) -> str | None:
    """Return why Java ended, where it said so: PySpark only knows that it did."""
    if log is None or not log.is_file():
        return None
    found = re.findall(
        r"^Exception in thread .*?: (.+)$", log.read_text(errors="replace"), re.MULTILINE
    )
    return found[-1] if found else None


def _check_pyspark() -> None:
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise MissingPackage(error.name or "pyspark", "a pipeline", "spark,pipelines") from None


@contextmanager
def _java_writes_to(log: Path | None) -> Iterator[None]:
    """Give the Java process, which inherits it, another standard error than ours."""
    if log is None:
        yield
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.dup2(file, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)
