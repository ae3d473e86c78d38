"""The HTTP API to streams: topics, as plain functions from a request to an answer.

``routes.py`` is the table of operations, ``authorize.py`` makes each request's caller,
``context.py`` is what the handlers share. Comes in: requests. Goes out: JSON, event streams,
WebSocket messages.
"""
