"""The blocking client that the command line and Spark use.

Its parts are imported when they are first asked for: a command that only prints its help needs
none of them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.client.blocking import Client, ServerInfo, Subscription, connect
    from millstream.client.errors import ClientError
    from millstream.client.parser import Message

__all__ = ["Client", "ClientError", "Message", "ServerInfo", "Subscription", "connect"]

_PLACES = {"ClientError": "errors", "Message": "parser"}


def __getattr__(name: str) -> Any:
    """Import a name of the package from where it is."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f"{__name__}.{_PLACES.get(name, 'blocking')}")
    return getattr(module, name)
