from typing import final

from millstream.kernel._delivery import Delivery
from millstream.kernel._phrases import Phrases

@final
class Operations:
    """The client protocol; opaque."""

    def __init__(self, delivery: Delivery, phrases: Phrases) -> None: ...
