"""Orders: what signals tell the running server, one after the other."""

import asyncio
import signal
from collections.abc import Callable
from enum import Enum


class Order(Enum):
    """What the server is told to do."""

    STOP = "stop"
    RELOAD = "reload"
    REOPEN = "reopen"
    LEAVE = "leave"


_SIGNALS = {
    signal.SIGINT: Order.STOP,
    signal.SIGTERM: Order.STOP,
    signal.SIGHUP: Order.RELOAD,
    signal.SIGUSR1: Order.REOPEN,
    signal.SIGUSR2: Order.LEAVE,
}


def from_signals(loop: asyncio.AbstractEventLoop) -> "asyncio.Queue[Order]":
    """Return a queue that fills with orders as signals arrive."""
    orders: asyncio.Queue[Order] = asyncio.Queue()
    for number, order in _SIGNALS.items():
        loop.add_signal_handler(number, orders.put_nowait, order)
    return orders


def to_be_told(orders: "asyncio.Queue[Order]") -> dict[str, Callable[[], None]]:
    """Return the orders that come by message, under the names that requests use."""
    return {"RELOAD": lambda: orders.put_nowait(Order.RELOAD)}
