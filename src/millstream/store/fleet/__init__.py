"""A store that members share: the log and the files of a shard as objects, the disk as a cache.

``fleet_file`` says what all members agree on, ``leases`` who is alive, ``member`` what one process
does about both. ``cache`` makes a data directory out of objects, so that the usual recovery reads
it; ``uploads`` makes objects out of its snapshots; ``engines`` puts the log's engine under a store.
Comes in: a URL. Goes out: a directory to recover, and an engine to commit with. Imports
``store.object_log`` and what a directory is made of.

A number in brackets, such as (rule 12), is that of a rule in docs/reference/fleet-log.md.
"""
