"""EventReader: server-sent events out of bytes; it cannot touch a socket."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its name, its data and the id to go on from."""

    name: str
    data: bytes
    id: str


class EventReader:
    """``feed`` bytes as they come; it returns the events that they complete."""

    def __init__(self) -> None:
        self._rest = b""
        self.last_id = ""

    def feed(self, data: bytes) -> list[ServerEvent]:
        """Return the events whose last line is among these bytes."""
        *blocks, self._rest = (self._rest + data).split(b"\n\n")
        return [event for event in map(self._read, blocks) if event is not None]

    def _read(self, block: bytes) -> ServerEvent | None:
        name, lines = "", []
        for line in block.split(b"\n"):
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"event":
                name = value.decode()
            elif field == b"data":
                lines.append(value)
            elif field == b"id":
                self.last_id = value.decode()
        return ServerEvent(name, b"\n".join(lines), self.last_id) if name else None
