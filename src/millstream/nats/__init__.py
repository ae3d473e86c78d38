"""NATS clients: sessions, accounts, the JetStream API, the system account.

``door.py`` listens, ``sessions.py`` answers the kernel for all clients, a ``Session`` for one.
Comes in: control operations and requests as batches. Goes out: replies as messages. Messages
themselves stay in the kernel.
"""
