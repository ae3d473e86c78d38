from collections.abc import Callable
from typing import final

from millstream.kernel._delivery import Delivery
from millstream.kernel._phrases import Phrases

@final
class Publishing:
    """Messages that the server itself sends; opaque."""

    def __init__(
        self,
        delivery: Delivery,
        phrases: Phrases,
        decorate: Callable[[bytes, bytes, bytes, bytes], bytes] | None,
    ) -> None: ...
