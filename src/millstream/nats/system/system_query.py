"""What a request to the system account asks for, and how it is refused."""

import logging
from collections.abc import Callable
from typing import Any

from millstream.errors import MillstreamError
from millstream.nats.system.server_card import ServerCard
from millstream.nats.system.system_shapes import OPTIONS, SERVERS
from millstream.wire.go_json import GoJsonError, unmarshal

log = logging.getLogger(__name__)

_OF_A_CLIENT = ("KICK", "LDM")
_NEVER_EMPTY = (*_OF_A_CLIENT, "NSUBS")
_UNANSWERED = (*_NEVER_EMPTY, "CONNS")


class RequestRefused(Exception):
    """A request that cannot be answered, with the code that says why."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Unanswerable(Exception):
    """A request that the reference leaves without an answer."""


def wanted_by(payload: bytes, what: str) -> dict[str, Any]:
    """Return the options that a request carries; ``what`` is the last word of its subject."""
    shape = OPTIONS.get(what)
    if shape is None or (not payload and what not in _NEVER_EMPTY):
        return {}
    try:
        wanted = unmarshal(payload, shape)
    except GoJsonError as error:
        if what in _UNANSWERED:
            raise Unanswerable(str(error)) from error
        raise RequestRefused(400, str(error)) from error
    return {**wanted, **_servers(payload)} if what in _OF_A_CLIENT else wanted


def _servers(payload: bytes) -> dict[str, Any]:
    """Return which servers a request means whose other options were read already."""
    try:
        return unmarshal(payload, SERVERS)
    except GoJsonError as error:
        raise RequestRefused(400, str(error)) from error


def answered(card: ServerCard, answer: Callable[[], bytes | None]) -> bytes | None:
    """Return the answer, or why there is none; None where silence is the answer."""
    try:
        return answer()
    except Unanswerable as error:
        log.warning("a request of the system account is not understood: %s", error)
        return None
    except RequestRefused as refusal:
        return card.failure(refusal.code, str(refusal))
    except MillstreamError as error:
        return card.failure(error.status, error.message)
    except Exception:
        log.exception("a request of the system account failed")
        return card.failure(500, "internal error")
