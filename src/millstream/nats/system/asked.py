"""What a request to the system account asks for, and how it is refused."""

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from millstream.errors import MillstreamError
from millstream.nats.system.server_card import ServerCard

log = logging.getLogger(__name__)


class RequestRefused(Exception):
    """A request that cannot be answered, with the code that says why."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def wanted_by(payload: bytes) -> dict[str, Any]:
    """Return the options that a request carries, none where it is empty."""
    try:
        made = msgspec.json.decode(payload or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestRefused(400, f"the request is not JSON: {error}") from error
    if made is None:
        return {}
    if not isinstance(made, dict):
        raise RequestRefused(400, "the request is no JSON object")
    return made


def answered(card: ServerCard, answer: Callable[[], bytes | None]) -> bytes | None:
    """Return the answer, or why there is none; None where silence is the answer."""
    try:
        return answer()
    except RequestRefused as refusal:
        return card.failure(refusal.code, str(refusal))
    except MillstreamError as error:
        return card.failure(error.status, error.message)
    except Exception:
        log.exception("a request of the system account failed")
        return card.failure(500, "internal error")
