from typing import final

from millstream.kernel._connections import Connections

@final
class Relay:
    """The links that a message goes to; opaque."""

    def __init__(self, connections: Connections) -> None: ...

@final
class Delivery:
    """What happens to a message that matches subscriptions; opaque."""

    def __init__(self, connections: Connections) -> None: ...
