"""HTTP/1.1 requests and responses as values, and the asyncio protocol that moves them.

Comes in: sockets and an application. Goes out: requests for it, and its answers as bytes; events
that go to many are framed once. ``http2.py`` does the same for HTTP/2.
"""
