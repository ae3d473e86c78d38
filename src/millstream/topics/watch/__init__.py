"""Following topics over one connection: server-sent events and the WebSocket.

Comes in: what to follow and from where. Goes out: events, in order, with the cursor to resume from.
"""
