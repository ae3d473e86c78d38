"""The log of a shard on an object store: one object for each entry, made by create-if-absent.

The store's create-if-absent is the only thing that decides what is committed. ``entry`` says what
an object holds, ``judgement`` what an answer of the store means, ``take_over`` how a member becomes
the writer, ``trim`` how old entries go, ``object_engine`` how the writer commits, ``probe`` whether
the store can be trusted. All of them but the engine decide only: they are generators that yield
requests (``requests``) and are sent the answers. Comes in: entries, and a place for objects. Goes
out: positions that hold them. Imports ``store.disk`` and ``store.wal.commit`` alone.

A number in brackets, such as (rule 4), is that of a rule in docs/reference/fleet-log.md.
"""
