"""Job queues: leases over a stream's records.

``leases.py`` decides without clock, disk or loop; ``queue.py`` carries it out. Comes in: claims
and answers of workers. Goes out: jobs, dead letters, and lease events as control frames, where
leases are durable.
"""
