from typing import final

@final
class Phrases:
    """The words that the hub says to clients, and the names that it keeps from them.

    A pair is what stands before and after the subject that it speaks of. ``sequence`` and ``time``
    stand before those of a record, behind its headers; ``no_headers`` is the block of a record that
    has none. ``reserved`` are prefixes of reply subjects, each with the length from which on
    clients may not use it. A header that begins with ``traced[0]``, or where a connection has
    ``parents`` with ``traced[1]`` in any case, makes the hub ask ``Handler.traced``.
    One that begins with ``scheduled`` makes it ask ``Handler.may_schedule`` about guarded ones.
    """

    def __init__(
        self,
        *,
        bad_subject: bytes = b"",
        reserved_reply: tuple[bytes, bytes] = (b"", b""),
        nobody: tuple[bytes, bytes] = (b"", b""),
        no_headers: bytes = b"\r\n",
        sequence: bytes = b"",
        time: bytes = b"",
        reserved: tuple[tuple[bytes, int], ...] = (),
        traced: tuple[bytes, bytes] = (b"", b""),
        scheduled: bytes = b"",
    ) -> None: ...
