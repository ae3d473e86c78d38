"""Where a client connects from."""

import asyncio


def peer_of(transport: asyncio.Transport | None) -> str:
    """Return the address at the other end, empty when it has none."""
    name = transport.get_extra_info("peername") if transport is not None else None
    return str(name[0]) if isinstance(name, tuple) and name else ""
