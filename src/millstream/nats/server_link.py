"""ServerLink: a connection to another server, as the hub's handler knows it."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from millstream.accounts.rights import Rights
    from millstream.kernel._interest import Interest
    from millstream.nats.accounts.accounts import Space
    from millstream.nats.publish_rights import PublishRights


class Judged(Protocol):
    """Somebody whose rights count: a client, or a server that has only some."""

    @property
    def space(self) -> "Space | None":
        """Return the account that it is in."""
        ...

    @property
    def rights(self) -> "Rights":
        """Return what it may publish and hear."""
        ...

    @property
    def publishing(self) -> "PublishRights":
        """Return what it may read and write by requests."""
        ...


class ServerLink(Protocol):
    """What becomes of the operations of a link; ``links.peer_link.PeerLink`` is one."""

    @property
    def judged(self) -> Judged | None:
        """Return its rights, None for a server that may do everything."""
        ...

    def connect(self, options: bytes) -> None:
        """Take CONNECT."""
        ...

    def info(self, info: bytes) -> None:
        """Take INFO."""
        ...

    def pong(self) -> None:
        """Take PONG."""
        ...

    def err(self, text: str) -> None:
        """Take -ERR."""
        ...

    def refuse(self, code: int) -> None:
        """Say why the kernel closes the connection."""
        ...

    def wish(self, account: bytes, wish: tuple[bytes, bytes], weight: int, origin: bytes) -> None:
        """Take what the other server wants."""
        ...

    def space_of(self, account: bytes) -> "Interest | None":
        """Return the subjects of an account that the other server names."""
        ...

    def may_publish(self, subject: bytes) -> int:
        """Judge a message that comes in."""
        ...

    def mapped(self, subject: bytes) -> bytes:
        """Return where a message goes by the account's mappings."""
        ...

    def closed(self, reason: int) -> None:
        """Forget the connection."""
        ...
