"""The URL of a log on another machine."""

from urllib.parse import urlsplit


def problem_of(remote: str) -> str:
    """Return what is wrong with the URL of a remote log, empty when nothing is."""
    try:
        parts = urlsplit(remote)
        port = parts.port
    except ValueError as error:
        return str(error)
    if parts.scheme == "unix":
        return "" if parts.path else "it names no socket"
    if parts.scheme not in ("udp", "tcp"):
        return "it must begin with udp://, tcp:// or unix://"
    if not parts.hostname or port is None:
        return "it must name a host and a port, like udp://localhost:514"
    return ""
