from millstream.server.embedded import EmbeddedServer as Server

__version__: str
__all__ = ["Server", "__version__"]
