"""The Python that a local Spark starts its workers with: this one, without Spark's zip files."""

import atexit
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

# Spark puts a zip of PySpark before the installed one. Nothing compiled can be kept beside a zip,
# so every worker compiles all that it imports: a second of CPU each, and Spark waits for only ten.
_SCRIPT = """\
#!/bin/sh
IFS=:
kept=
for place in $PYTHONPATH; do
    case $place in
    */pyspark.zip | */py4j-*-src.zip | *.jar) ;;
    *) kept=${{kept:+$kept:}}$place ;;
    esac
done
unset IFS
export PYTHONPATH="$kept"
exec {python} "$@"
"""


@contextmanager
def worker_python() -> Iterator[str]:
    """Make a command that runs this Python on the installed PySpark; it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="millstream-python-") as made:
        script = Path(made, "python3")
        script.write_text(_SCRIPT.format(python=shlex.quote(sys.executable)))
        script.chmod(0o755)
        yield str(script)


@cache
def lasting_python() -> str:
    """Return such a command that is there until this process ends."""
    kept = ExitStack()
    atexit.register(kept.close)
    return kept.enter_context(worker_python())


@contextmanager
def workers_use_it() -> Iterator[None]:
    """Let a Spark that starts meanwhile use that command, unless the user chose a Python.

    The command outlives the block: Java keeps the environment it was started with, and serves every
    later session of this process.
    """
    if "PYSPARK_PYTHON" in os.environ:
        yield
        return
    os.environ["PYSPARK_PYTHON"] = lasting_python()
    try:
        yield
    finally:
        del os.environ["PYSPARK_PYTHON"]
