"""millstream: one durable log that NATS clients, HTTP clients and Spark share."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
__all__ = ["Server", "__version__"]


def __getattr__(name: str) -> Any:
    """Import the server only for those who embed it: clients and Spark never need it."""
    if name == "Server":
        return import_module("millstream.server.embedded").EmbeddedServer
    raise AttributeError(f"module 'millstream' has no attribute {name!r}")
