from typing import final

from millstream.kernel._operations import Operations

@final
class Turns:
    """When input is read and output sent; opaque."""

    def __init__(self, operations: Operations) -> None: ...
