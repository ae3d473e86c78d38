"""The system account: its requests (``$SYS.REQ…``) and the events that the server sends.

Comes in: request messages. Goes out: replies and events as messages.
"""
