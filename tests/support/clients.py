"""What tests need of nats-py beyond what it offers."""

from nats.aio.client import Client


async def flushed(*clients: Client) -> None:
    """Wait until the server has taken in all that these clients sent.

    A flush of nats-py writes its PING ahead of what is still pending, so one answer says nothing of
    a subscription made just before. By the time of that answer it is sent, and a second answer
    comes behind it.
    """
    for client in clients:
        await client.flush()
        await client.flush()
