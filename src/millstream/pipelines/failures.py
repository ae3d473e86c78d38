"""A failure of Spark in one line: what went wrong, not where in Java it was noticed."""

import re

from millstream.pipelines.problems import PipelineError

# The last line of a Python traceback, as Spark quotes it; those of Java and Spark say less.
_PYTHON = re.compile(
    r"^(?!org\.|java\.|py4j\.|pyspark\.)"
    r"((?:[a-z_]\w*\.)+[A-Z]\w+|[A-Z]\w*(?:Error|Exception)): (.+)$",
    re.MULTILINE,
)
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_CLASS = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
# What Java says was the cause, where nothing of Python or Spark tells more.
_CAUSE = re.compile(r"^(?:Caused by: |: )(?:[a-z]\w*\.)+[A-Z]\w+: (.+)$", re.MULTILINE)
# What Spark says where it has no class of error for it.
_SPARK = re.compile(r"^pyspark\.(?:\w+\.)+[A-Z]\w+: (?!\[)(.+)$", re.MULTILINE)
_WRAPPERS = (
    "STREAM_FAILED",
    "PYTHON_DATA_SOURCE_ERROR",
    "PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR",
    "FOREACH_BATCH_USER_FUNCTION_ERROR",
)
LONGEST = 600


def failed(who: str, error: BaseException) -> PipelineError:
    """Return the problem to show for an exception that Spark raised."""
    return PipelineError(f"{who} failed: {in_one_line(str(error))}")


def in_one_line(text: str) -> str:
    """Return the innermost cause that a text of Spark names."""
    if raised := _RAISED.search(text):
        return _cut(raised[1])
    if python := _PYTHON.findall(text):
        return _cut(python[-1][1])
    for name, message in reversed(_CLASS.findall(text)):
        if not name.startswith(_WRAPPERS):
            return _cut(f"{message} ({name})")
    if said := _SPARK.findall(text):
        return _cut(said[-1])
    if causes := _CAUSE.findall(text):
        return _cut(causes[-1])
    return _cut(text.strip().split("\n")[0] or "no reason given")


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
