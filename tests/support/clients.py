"""What tests need of nats-py beyond what it offers."""

import contextlib
from collections.abc import AsyncIterator

from nats.aio.client import Client

import nats
from support.peers import Peer


@contextlib.asynccontextmanager
async def mortal_client(peer: Peer) -> AsyncIterator[Client]:
    """A client that ends with its connection, for tests that kill the server under it."""
    client = await nats.connect(
        f"nats://127.0.0.1:{peer.port}", allow_reconnect=False, connect_timeout=20
    )
    try:
        yield client
    finally:
        with contextlib.suppress(Exception):
            await client.close()


async def flushed(*clients: Client) -> None:
    """Wait until the server has taken in all that these clients sent.

    A flush of nats-py writes its PING ahead of what is still pending, so one answer says nothing of
    a subscription made just before. By the time of that answer it is sent, and a second answer
    comes behind it.
    """
    for client in clients:
        await client.flush()
        await client.flush()
