"""``streams { NAME { subjects: [...] } }`` as they stand in a file."""

from difflib import get_close_matches
from typing import Any

from millstream.errors import MillstreamError
from millstream.server.conf.setting import Setting
from millstream.server.conf.syntax import ConfBlock, ConfError
from millstream.server.options.options import StreamOptions
from millstream.streams.config.config import StreamConfig
from millstream.streams.config.config_shape import STREAM_FIELDS

DURATIONS = ("max_age", "duplicate_window", "subject_delete_marker_ttl")


def streams(setting: Setting) -> tuple[StreamOptions, ...]:
    """Read a block of streams; a bad one is reported and left out."""
    made = []
    for inner in setting.inner():
        try:
            made.append(_stream(inner))
        except ConfError as error:
            setting.findings.problems.append(error)
    return tuple(made)


def _stream(setting: Setting) -> StreamOptions:
    config: dict[str, Any] = {"name": setting.key}
    for inner in setting.inner():
        if inner.key not in STREAM_FIELDS:
            near = get_close_matches(inner.key, STREAM_FIELDS, n=1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise inner.wrong(f"is no field of a stream{hint}")
        config[inner.key] = _value(inner)
    try:
        StreamConfig.from_request(config)
    except MillstreamError as error:
        raise setting.wrong(f"describes no stream: {error.message}") from error
    return StreamOptions(setting.key, config)


def _value(setting: Setting) -> Any:
    value = setting.value
    if setting.key in DURATIONS and isinstance(value, str):
        return int(setting.duration() * 1_000_000_000)
    if setting.key in ("subjects", "sources") and isinstance(value, str):
        value = [value]
    if setting.key == "sources" and isinstance(value, list):
        return [{"name": each} if isinstance(each, str) else _plain(each) for each in value]
    if setting.key == "mirror" and isinstance(value, str):
        return {"name": value}
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, ConfBlock | dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value
