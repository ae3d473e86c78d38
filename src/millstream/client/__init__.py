"""The blocking client that the command line and Spark use."""

from millstream.client.blocking import Client, ServerInfo, Subscription, connect
from millstream.client.errors import ClientError
from millstream.client.parser import Message

__all__ = ["Client", "ClientError", "Message", "ServerInfo", "Subscription", "connect"]
