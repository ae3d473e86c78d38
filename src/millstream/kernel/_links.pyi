from typing import final

from millstream.kernel._delivery import Delivery
from millstream.kernel._interest import Interest
from millstream.kernel._operations import Operations

@final
class LinkOperations:
    """The protocol between servers; opaque."""

    def __init__(self, operations: Operations) -> None: ...

@final
class Wishes:
    """Remote interest, kept by link, account, subject and queue, each with a weight."""

    def __init__(self, delivery: Delivery) -> None: ...
    def link(self, cid: int, kind: int, max_pending: int, cluster: bytes = b"") -> None: ...
    def name_cluster(self, cid: int, cluster: bytes) -> None: ...
    def open_link(
        self,
        cid: int,
        *,
        headers: bool,
        guarded: bool = False,
        mapped: bool = False,
        trusted: bool = True,
        tells_origin: bool = False,
        interest: Interest | None = None,
        max_payload: int | None = None,
    ) -> None: ...
    def wish(
        self,
        cid: int,
        account: bytes,
        interest: Interest,
        subject: bytes,
        queue: bytes = b"",
        weight: int = 1,
        deny: tuple[bytes, ...] = (),
        cluster: bytes = b"",
    ) -> bool: ...
    def unwish(self, cid: int, account: bytes, subject: bytes, queue: bytes = b"") -> bool: ...
    def drop_all(self, cid: int, account: bytes | None = None) -> int: ...
    def of(self, cid: int) -> list[tuple[bytes, bytes, bytes, int, int]]: ...
    def count(self, cid: int) -> int: ...
    def match_remote(
        self, interest: Interest, subject: bytes
    ) -> tuple[list[int], dict[bytes, list[int]]]: ...
    def has_remote_interest(self, interest: Interest, subject: bytes) -> bool: ...
    def stats(self) -> dict[str, int]: ...
