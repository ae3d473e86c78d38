"""What a start goes by: options, and what was doubtful where they came from."""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from millstream.server.options import Options


class Loaded(msgspec.Struct, frozen=True):
    """Options to serve with, and what their file is doubtful about."""

    options: Options
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


Load: TypeAlias = Callable[[], Loaded]
