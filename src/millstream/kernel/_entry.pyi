from collections.abc import Sequence

def encode_head(
    position: int,
    epoch: int,
    nonce: int,
    durable: int,
    flags: int,
    runs: Sequence[tuple[int, int, int, int]],
    body: bytes,
) -> bytes: ...
