"""Health and statistics of the server, in nats-server's shapes.

Comes in: ``Facts``, values and calls that ``server/observer.py`` gives. Goes out: what an
endpoint or a ``$SYS`` request answers.
"""
