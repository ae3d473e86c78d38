"""Fields of a body that the API does not know: they are ignored, but not in silence."""

import types
import typing
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any

import msgspec

from millstream.errors import BadRequest
from millstream.http.request import Request
from millstream.streams.config.config import TOPIC_FIELDS

MOST = 10  # warnings in one answer
LONGEST = 100  # characters of a name that an answer repeats


class UnknownField(BadRequest):
    """A field that the API does not know, where the client wants to be told."""

    code = "unknown_field"


@cache
def strict_twin(kind: Any) -> Any:
    """Return a kind of ``kind`` that refuses unknown fields, in its parts too."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return msgspec.defstruct(
            f"Strict{kind.__name__}",
            list(_strict_fields(kind)),
            bases=(kind,),
            forbid_unknown_fields=True,
            kw_only=True,
            gc=kind.__struct_config__.gc,
        )
    parts = typing.get_args(kind)
    if not parts:
        return kind
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return typing.Union[tuple(strict_twin(part) for part in parts)]  # noqa: UP007 - made at run time
    if typing.get_origin(kind) in (list, dict):
        return typing.get_origin(kind)[tuple(strict_twin(part) for part in parts)]
    return kind


def _strict_fields(kind: type[msgspec.Struct]) -> Iterator[tuple[str, Any] | tuple[str, Any, Any]]:
    """Go through the fields whose own type changes."""
    for field in msgspec.structs.fields(kind):
        strict = strict_twin(field.type)
        if strict is not field.type and strict != field.type:
            if field.required:
                yield field.name, strict
            else:
                yield field.name, strict, field.default


def note_unknown(request: Request, body: bytes, kind: Any) -> None:
    """Warn of fields that ``kind`` does not have; raises UnknownField where that is wished."""
    try:
        told = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return  # the reader of the body says what is wrong
    note(request, _unknown(told, kind, ""))


def note_topic_config(request: Request, config: object, where: str = "") -> None:
    """Warn of fields that a topic's configuration does not have."""
    if isinstance(config, dict):
        note(request, ((where + str(each), TOPIC_FIELDS) for each in config.keys() - TOPIC_FIELDS))


def note(request: Request, found: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Say in the answer which fields were ignored, or refuse the request."""
    for field, known in found:
        text = f"unknown field {field[:LONGEST]!r} was ignored{_hint(field, known)}"
        if request.flag("strict", False):
            raise UnknownField(text.replace(" was ignored", ""), {"field": field[:LONGEST]})
        if len(request.warnings) < MOST:
            request.warnings = (*request.warnings, text)


def _hint(field: str, known: Iterable[str]) -> str:
    near = get_close_matches(field.rpartition(".")[2][:LONGEST], list(known), n=1)
    return f": did you mean {near[0]!r}?" if near else ""


def _unknown(told: Any, kind: Any, where: str) -> Iterator[tuple[str, Iterable[str]]]:
    """Go through the fields of a body that its type does not have."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(told, dict):
        hints = typing.get_type_hints(kind)
        for field, value in told.items():
            if field in hints:
                yield from _unknown(value, hints[field], f"{where}{field}.")
            else:
                yield where + field, kind.__struct_fields__
        return
    parts = typing.get_args(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        for part in parts:
            yield from _unknown(told, part, where)
    elif typing.get_origin(kind) is list and isinstance(told, list):
        for each in told[:MOST]:
            yield from _unknown(each, parts[0], where)
    elif typing.get_origin(kind) is dict and isinstance(told, dict):
        for name, each in list(told.items())[:MOST]:
            yield from _unknown(each, parts[1], f"{where}{name}.")
