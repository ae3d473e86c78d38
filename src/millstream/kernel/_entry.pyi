from collections.abc import Sequence

def encode(
    position: int,
    epoch: int,
    nonce: int,
    durable: int,
    flags: int,
    runs: Sequence[tuple[int, int, int, int]],
    parts: Sequence[bytes],
) -> bytes: ...
