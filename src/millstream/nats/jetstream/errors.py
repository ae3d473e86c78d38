"""What goes wrong at the JetStream API, and how an answer says so."""

import re
from typing import Any, TypeVar

import msgspec

from millstream.errors import MillstreamError
from millstream.streams.config.config import API_LEVEL, InvalidJson
from millstream.streams.config.extras import first_values
from millstream.wire import go_json
from millstream.wire.go_json import GoJsonError, Shape


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


_T = TypeVar("_T")

_STARTS_JSON = re.compile(rb"[ \t\r\n]*[{\[]")
_EMPTY = re.compile(rb"(?:[ \t\r\n]*\{[ \t\r\n]*\}[ \t\r\n]*)?")


def read_object(body: bytes, shape: Shape, *, strict: bool = True) -> dict[str, Any]:
    """Return what a request says; strict about unknown fields, unless told not to be."""
    try:
        return go_json.read_request(body, shape, strict=strict)
    except GoJsonError as error:
        raise InvalidJson(str(error)) from error


def read_as(body: bytes, shape: Shape, kind: type[_T], *, strict: bool = True) -> _T:
    """Return a request as a struct; strict about unknown fields, unless told not to be."""
    return msgspec.convert(read_object(body, shape, strict=strict), kind)


def read_optional(body: bytes, shape: Shape, kind: type[_T], *, strict: bool = True) -> _T:
    """Return a request as a struct; what is neither object nor array says nothing."""
    return read_as(body if _STARTS_JSON.match(body) else b"", shape, kind, strict=strict)


def read_loosely(body: bytes, shape: Shape, kind: type[_T]) -> _T:
    """Return one value as a struct; fields that it does not have are left alone."""
    try:
        return msgspec.convert(go_json.unmarshal(body, shape), kind)
    except GoJsonError as error:
        raise InvalidJson(str(error)) from error


def is_empty(body: bytes) -> bool:
    """Whether a request says nothing: no text, or an object without fields."""
    return _EMPTY.fullmatch(body) is not None


def expect_empty(body: bytes) -> None:
    """Refuse a body where none belongs; an empty object counts as none."""
    if not is_empty(body):
        raise ApiError(400, 10038, "expected an empty request payload")
