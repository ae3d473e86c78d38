"""Streams that the configuration names: made, or made so, before the server is ready."""

from collections.abc import Iterable

from millstream.errors import MillstreamError
from millstream.server.options.config_error import ConfigError
from millstream.server.options.options import StreamOptions
from millstream.streams.catalog import Catalog
from millstream.streams.config.config import StreamConfig


async def declare(catalog: Catalog, wanted: Iterable[StreamOptions]) -> None:
    """Create the streams that are missing, and change those that differ; removes none."""
    for wish in wanted:
        try:
            await _declare(catalog, wish)
        except MillstreamError as error:
            raise ConfigError(
                f"streams.{wish.name} of the configuration: {error.message}"
            ) from error


async def _declare(catalog: Catalog, wish: StreamOptions) -> None:
    known = catalog.find(wish.name)
    if known is None:
        await catalog.create(StreamConfig.from_request(wish.config))
        return
    shown = known.config.to_request()
    if any(shown.get(field) != value for field, value in wish.config.items()):
        merged = {**shown, **wish.config}
        await catalog.update(StreamConfig.from_request(merged, known.config))
