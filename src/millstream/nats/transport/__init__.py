"""The way to a client whose bytes Python moves: TLS, WebSocket, traced plain TCP.

Comes in: sockets. Goes out: bytes for ``hub.feed``, bytes from ``hub.take``. Knows no NATS
operation beyond the handshake.
"""
