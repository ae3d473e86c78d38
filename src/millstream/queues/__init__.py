"""Job queues: leases over a stream's records.

``leases.py`` decides without clock, disk or loop; ``queue.py`` carries it out, with
``claim_cohorts.py`` for claims that are served together and ``job_removal.py`` for jobs that leave.
Comes in: claims and answers of workers. Goes out: jobs, dead letters, and lease events as control
frames, where leases are durable.
"""
