from typing import final

@final
class Outboxes:
    """What waits to be sent, and the epoll descriptor that says when it can be; opaque."""
