"""ConfigError: why a server cannot start as it was told to."""


class ConfigError(Exception):
    """The server cannot start like this; the text is one line that says why and what to do."""
