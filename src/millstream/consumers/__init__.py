"""Positions in a stream and what is owed to whom.

A ``Consumer`` is a cursor and a ledger over a stream. A desk (``PullDesk``, ``PushDesk``) decides
who is served; the ``Feed`` brings redeliveries first, then new records; the ``Outlet`` publishes
them; ``Answers`` takes acks. Comes in: pull requests and acks as batches. Goes out: records as
messages, and word to the stream of what is settled.
"""
