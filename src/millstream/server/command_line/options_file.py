"""From a command line and the file it names to checked ``Options``; again at every reload."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.server.command_line.flag_options import with_flags
from millstream.server.command_line.flags import Flags
from millstream.server.options.config_error import ConfigError
from millstream.server.options.loaded import Loaded
from millstream.server.options.options import Options
from millstream.server.options.options_check import refuse_contradictions

if TYPE_CHECKING:
    from millstream.server.conf.document import FileOptions


def load(flags: Flags, environment: Mapping[str, str], base: Options | None = None) -> Loaded:
    """Return what the command line and its file ask for; raises ``ConfigError``."""
    file = flags.text("config")
    if not file:  # the readers of files are not imported for nothing
        options = with_flags(base or Options(), flags)
        refuse_contradictions(options, file, {})
        return Loaded(options)
    read = read_file(file, environment, base)
    options = with_flags(read.options, flags)
    refuse_contradictions(options, file, read.places)
    return Loaded(
        options,
        tuple(str(warning) for warning in read.warnings),
        tuple(str(note) for note in read.notes),
    )


def read_file(file: str, environment: Mapping[str, str], base: Options | None) -> "FileOptions":
    """Return a file's options over ``base``; without a file, ``base`` as it is."""
    from msgspec.structs import replace

    from millstream.server.conf.config_digest import config_digest
    from millstream.server.conf.document import FileOptions, from_block
    from millstream.server.conf.syntax import ConfError, parse

    if not file:
        return FileOptions(base or Options())
    try:
        block = parse(read_text(file), file, environment=environment, read=_included)
    except ConfError as error:
        raise ConfigError(str(error)) from error
    found = from_block(block, file, base)
    return replace(found, options=replace(found.options, config_digest=config_digest(block)))


def read_text(file: str) -> str:
    """Return a file's text; raises ``ConfigError`` that names it."""
    try:
        return Path(file).read_text()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not text in UTF-8") from error


def _included(path: str) -> str:
    return Path(path).read_text()
