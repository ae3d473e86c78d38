"""Errors of ours in one line below Spark's own, without the way that Python took to them.

Spark sends a worker's exception with its traceback to the driver, and shows both. Where the text
says what is wrong and how to mend it, forty lines of our files above it only hide it.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from millstream.client.errors import ClientError
from millstream.spark.problems import SparkSourceError

log = logging.getLogger(__name__)
HIDE = "SPARK_HIDE_TRACEBACK"  # Spark's own word for it, read when it sends the exception


@contextmanager
def in_one_line() -> Iterator[None]:
    """Let Spark show of an error of ours only what it says; also a decorator."""
    try:
        yield
    except (SparkSourceError, ClientError) as error:
        if _is_worker():  # which ends with this exception: nobody else's traceback is hidden
            log.debug("an error for the user", exc_info=error)
            os.environ[HIDE] = "1"
        raise


def _is_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and str(spec.name).startswith("pyspark.")
