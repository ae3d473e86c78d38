"""Job queues: leases over a stream's records."""
