"""What a start goes by: options, and what was doubtful where they came from."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from millstream.server.options.options import Options

# Where a file has its settings: key → file and line.
Places: TypeAlias = Mapping[str, tuple[str, int]]


class Loaded(msgspec.Struct, frozen=True):
    """Options to serve with, and what their file is doubtful about."""

    options: Options
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    places: Places = {}


Load: TypeAlias = Callable[[], Loaded]
