"""How long a test may take: short by default, in full for ``make proof``."""

import os
from typing import TypeVar

T = TypeVar("T")

PROOF = os.environ.get("MILLSTREAM_PROOF") == "1"


def count(short: T, full: T) -> T:
    """Return ``full`` when proving, ``short`` otherwise."""
    return full if PROOF else short
