"""What goes wrong at the JetStream API, and how an answer says so."""

import re
from typing import Annotated, Any, TypeAlias

import msgspec

from millstream.errors import MillstreamError
from millstream.streams.config.config import API_LEVEL, InvalidJson
from millstream.streams.config.extras import first_values

Unsigned: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]  # in the shape of a request


class ApiError(MillstreamError):
    """A failure that only this API knows, by its pair of codes."""

    http_status = 400
    code = "invalid_request"

    def __init__(self, status: int, err_code: int, message: str) -> None:
        super().__init__(message)
        self.status = status  # type: ignore[misc]
        self.err_code = err_code  # type: ignore[misc]


class LevelTooLow(ApiError):
    """The request needs more than this API level offers."""

    def __init__(self) -> None:
        super().__init__(412, 10185, "JetStream minimum api level required")


_NUMBER = re.compile(rb"[+-]?[0-9]+")


def check_level(headers: bytes) -> None:
    """Refuse a request that asks for more than this API level; raises LevelTooLow."""
    if b"Nats-Required-Api-Level" not in headers:
        return
    level = first_values(headers).get(b"Nats-Required-Api-Level", b"")
    if level and (not _NUMBER.fullmatch(level) or int(level) > API_LEVEL):
        raise LevelTooLow()


def bad_request() -> ApiError:
    """Return the failure of a request that makes no sense."""
    return ApiError(400, 10003, "bad request")


def name_mismatch() -> ApiError:
    """Return the failure of a body that names another stream than its subject."""
    return ApiError(400, 10056, "stream name in subject does not match request")


def as_error(error: MillstreamError) -> dict[str, Any]:
    """Return the ``error`` object of an answer."""
    return {"code": error.status, "err_code": error.err_code, "description": error.message}


def read_object(
    body: bytes, allowed: tuple[str, ...] | None = None, cut: str = "unexpected EOF"
) -> dict[str, Any]:
    """Return a request's JSON object, empty for an empty body; strict about unknown fields.

    ``cut`` is what is said of a body that ends too early.
    """
    if not body.strip():
        return {}
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        why = cut if "truncated" in str(error) else str(error)
        raise InvalidJson(why) from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidJson("the request is no JSON object")
    for key in value:
        if allowed is not None and key not in allowed:
            raise InvalidJson(f'json: unknown field "{key}"')
    return value


def read_as(body: bytes, shape: type[Any], *, strict: bool = True) -> Any:
    """Return a request as a struct; strict about unknown fields, unless told not to be."""
    if not strict:
        return read_loosely(body, shape)
    return _converted(read_object(body, shape.__struct_fields__), shape)


def read_loosely(body: bytes, shape: type[Any]) -> Any:
    """Return a request as a struct; fields that it does not have are left alone."""
    return _converted(read_object(body, cut="unexpected end of JSON input"), shape)


def _converted(given: dict[str, Any], shape: type[Any]) -> Any:
    try:
        return msgspec.convert({k: v for k, v in given.items() if v is not None}, shape)
    except msgspec.ValidationError as error:
        raise InvalidJson(str(error)) from error


_EMPTY = re.compile(rb"\s*\{\s*\}\s*")


def expect_empty(body: bytes) -> None:
    """Refuse a body where none belongs; an empty object counts as none."""
    if body and not _EMPTY.fullmatch(body):
        raise ApiError(400, 10038, "expected an empty request payload")
