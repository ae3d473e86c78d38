"""What the fields of a msgspec Struct are made of."""

from collections.abc import Iterator
from typing import Any

import msgspec


def structs_in(annotation: Any) -> Iterator[type]:
    """Yield the Structs that an annotation names, however deep."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from structs_in(inner)
